// Copy buttons. Without this file, the user can select and copy the field next to the button.
document.querySelectorAll("[data-copy]").forEach(function (button) {
  var field = document.getElementById(button.dataset.copy);
  var word = button.firstChild; // the text before the name of the field
  var said = word.nodeValue;
  button.hidden = false;
  button.addEventListener("click", function () {
    field.select();
    var copied = navigator.clipboard ? navigator.clipboard.writeText(field.value) : Promise.reject();
    copied.then(null, function () { document.execCommand("copy"); }).then(function () {
      word.nodeValue = "Copied";
      setTimeout(function () { word.nodeValue = said; }, 2000);
    });
  });
});

// Print buttons. Without this file, the browser's menu prints the page.
document.querySelectorAll("[data-print]").forEach(function (button) {
  button.hidden = false;
  button.addEventListener("click", function () { window.print(); });
});

// The second click of a double click sends nothing: its response would replace the first one, which may show a secret only
// once. A user who returns to the page, or who stopped it from loading, can send the form again after five seconds.
document.addEventListener("submit", function (event) {
  var sent = event.target.dataset.sent;
  if (sent && performance.now() - sent < 5000) { event.preventDefault(); return; }
  event.target.dataset.sent = performance.now();
});
window.addEventListener("pageshow", function () {
  document.querySelectorAll("form[data-sent]").forEach(function (form) { delete form.dataset.sent; });
});
