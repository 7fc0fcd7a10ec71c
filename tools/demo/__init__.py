"""The main job: real handwritten digits train a small network with paddle, fed by this package.

`python -m tools.demo` runs it. Everything a user would write is in `digits`, `network`, `dynamic`
and `static`; the rest measures and shows. `cluster` has remote workers, of which a node is killed.
"""
