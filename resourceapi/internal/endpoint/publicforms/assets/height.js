// Tells the page that frames this one how high it is, and that a new page is there. It says nothing else.
(function () {
  "use strict";
  if (window.parent === window) return;
  function tell() {
    var height = Math.ceil(document.body.getBoundingClientRect().height);
    window.parent.postMessage({ almoner: "height", height: height }, "*");
  }
  new ResizeObserver(tell).observe(document.body);
  tell();
})();
