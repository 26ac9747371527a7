// Browsers start no worker from the file system. There, the script of a worker runs in a hidden frame instead, so that the search
// works. On a web server, nothing is changed.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.frame = frame
      const inside = frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => load(each)), Promise.resolve())
      const load = each => new Promise((done, failed) => {
        const script = inside.document.createElement("script")
        script.src = each
        script.onload = done
        script.onerror = failed
        inside.document.body.append(script)
      })
      this.ready = load(String(url))
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() { this.frame.remove() }
  }
}
