// A page that is opened from the disk may not start a Worker: run the search in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) => Promise.all(urls.map(each => this.load(inside, each)))
      this.load(inside, url).then(() => {
        this.inside = inside
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      })
    }
    load(inside, url) {
      return new Promise((done, failed) => {
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = done
        script.onerror = failed
        inside.document.body.appendChild(script)
      })
    }
    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }))
      else this.waiting.push(data)
    }
    terminate() {}
  }
}
