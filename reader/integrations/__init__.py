"""What other programs show of a loader: dashboards, training libraries, progress bars, profilers.

Each module is named after the library that it serves, imports that library, and is imported by
nothing else of this package: import the one that you use. Imports the engine's faces and
`reader.observe`; reads counters that are kept anyway, and starts no thread.
"""
