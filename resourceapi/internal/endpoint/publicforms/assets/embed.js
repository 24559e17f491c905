// Puts an Almoner form on a page:
//   <script src="…/v1/engage/public/embed.js" data-form="alm_embed_…" async></script>
// The form appears in place of the script, in a frame with the height of the form. Further attributes, all optional:
//   data-theme   "dark", or "auto" to follow the system; otherwise the form is light
//   data-accent  colour of the button, like "#7a1fa2"; links have a readable shade of it
//   data-lang    language of the built-in texts, instead of the form's language,
//                such as "pl"; the console says if there is none
//   data-title   title of the frame for screen readers, instead of the form's title
(function () {
  "use strict";
  var script = document.currentScript;
  var key = script && script.getAttribute("data-form");
  if (!key) return;
  var home = new URL(script.src);
  var theme = script.getAttribute("data-theme");
  if (theme !== "auto" && theme !== "dark") theme = "light";
  var address = new URL(home.origin + "/v1/engage/public/forms/" + encodeURIComponent(key) + "/embed");
  address.searchParams.set("frame", "1");
  if (theme !== "light") address.searchParams.set("theme", theme);
  var accent = (script.getAttribute("data-accent") || "").trim().replace(/^#/, "");
  if (/^([0-9a-f]{3}|[0-9a-f]{6})$/i.test(accent)) address.searchParams.set("accent", accent);
  var lang = script.getAttribute("data-lang");
  if (lang) address.searchParams.set("lang", lang);
  var title = script.getAttribute("data-title");
  var frame = document.createElement("iframe");
  frame.src = address.href;
  frame.title = title || "Form";
  frame.style.cssText = "display:block;width:100%;height:32rem;border:0";
  // A frame is transparent only if it has the same color-scheme as its page.
  frame.style.colorScheme = theme === "auto" ? "light dark" : theme;
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
    if (!title && typeof said.title === "string" && said.title) frame.title = said.title;
  });
  script.parentNode.insertBefore(frame, script.nextSibling);
})();
