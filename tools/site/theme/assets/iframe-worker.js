// A page that is opened from a disk may start no worker. There the worker of the search runs in a
// hidden frame instead: same script, same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inner = frame.contentWindow
      this.inner = inner
      this.waiting = []
      const document_ = frame.contentDocument
      document_.open()
      document_.write("<!doctype html><body></body>")
      document_.close()
      const load = (source) => new Promise((done, failed) => {
        const script = document_.createElement("script")
        Object.assign(script, { src: source, onload: done, onerror: failed })
        document_.body.append(script)
      })
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inner.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
      inner.__index = window.__index
      load(new URL(url, location.href).href).then(() => {
        this.waiting.forEach((data) => this.send(data))
        this.waiting = null
      })
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.send(data)
    }

    send(data) {
      setTimeout(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })))
    }

    set onmessage(listener) {
      this.addEventListener("message", listener)
    }
  }
}
