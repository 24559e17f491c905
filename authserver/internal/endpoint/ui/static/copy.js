// Copy buttons. Without this file the field beside the button can be selected and copied by hand.
document.querySelectorAll("[data-copy]").forEach(function (button) {
  var field = document.getElementById(button.dataset.copy);
  var word = button.firstChild; // before what the field is called
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

// The second click of a double click sends nothing: its answer would take the place of the first one's, and of a secret that is shown
// once. Whoever comes back to the page can send the form again, and whoever stopped it from loading after five seconds.
document.addEventListener("submit", function (event) {
  var sent = event.target.dataset.sent;
  if (sent && performance.now() - sent < 5000) { event.preventDefault(); return; }
  event.target.dataset.sent = performance.now();
});
window.addEventListener("pageshow", function () {
  document.querySelectorAll("form[data-sent]").forEach(function (form) { delete form.dataset.sent; });
});
