// The road of a batch: lights the box of the section that is being read.
const stops = [...document.querySelectorAll(".road .stop")]
if (stops.length) {
  const figure = document.querySelector(".road")
  const sections = stops.map((stop) => document.getElementById(stop.getAttribute("href").slice(1)))
  const light = () => {
    const line = Math.max(figure.getBoundingClientRect().bottom, 0) + 120
    let here = -1
    sections.forEach((section, number) => {
      const top = section.getBoundingClientRect().top
      if (top < line && (here < 0 || top > sections[here].getBoundingClientRect().top)) here = number
    })
    stops.forEach((stop, number) => stop.classList.toggle("is-here", number === here))
  }
  addEventListener("scroll", light, { passive: true })
  light()
}
