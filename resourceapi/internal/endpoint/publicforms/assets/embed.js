// Puts an Almoner form on a page:
//   <script src="…/v1/engage/public/embed.js" data-form="alm_embed_…" async></script>
// The form appears in place of the script, in a frame with the height of the form.
(function () {
  "use strict";
  var script = document.currentScript;
  var key = script && script.getAttribute("data-form");
  if (!key) return;
  var home = new URL(script.src);
  var frame = document.createElement("iframe");
  frame.src = home.origin + "/v1/engage/public/forms/" + encodeURIComponent(key) + "/embed?frame=1";
  frame.title = script.getAttribute("data-title") || "Form";
  frame.style.cssText = "display:block;width:100%;height:32rem;border:0;color-scheme:light dark";
  var pages = 0;
  frame.addEventListener("load", function () {
    // After sending, a new page loads: scroll to its top.
    if (pages++ > 0 && frame.getBoundingClientRect().top < 0) frame.scrollIntoView();
  });
  window.addEventListener("message", function (event) {
    if (event.source !== frame.contentWindow || event.origin !== home.origin) return;
    var said = event.data;
    if (!said || said.almoner !== "height" || !(said.height > 0 && said.height < 100000)) return;
    frame.style.height = Math.ceil(said.height) + "px";
  });
  script.parentNode.insertBefore(frame, script.nextSibling);
})();
