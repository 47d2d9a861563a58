// A worker in a hidden frame, for pages that are opened as files: browsers start no real worker there, and the search of the
// site is one. `IFrameWorker` in the window tells its script that paths are those of a page.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = frame.contentWindow;
      const answer = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const load = (address) =>
        new Promise((loaded, failed) => {
          const script = inner.document.createElement("script");
          script.src = new URL(address, location.href).href;
          script.onload = loaded;
          script.onerror = failed;
          inner.document.head.appendChild(script);
        });
      inner.document.open();
      inner.document.write("<!doctype html><title>worker</title><head></head>");
      inner.document.close();
      inner.postMessage = (data) => setTimeout(answer, 0, data);
      inner.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve());
      this.ready = load(url);
      this.post = (data) => inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      this.terminate = () => frame.remove();
    }

    postMessage(data) {
      this.ready.then(() => this.post(data));
    }
  };
  window.Worker = window.IFrameWorker;
}
