// Copy buttons. Without this file the field beside the button can be selected and copied by hand.
document.querySelectorAll("[data-copy]").forEach(function (button) {
  var field = document.getElementById(button.dataset.copy);
  var said = button.textContent;
  button.hidden = false;
  button.addEventListener("click", function () {
    field.select();
    var copied = navigator.clipboard ? navigator.clipboard.writeText(field.value) : Promise.reject();
    copied.then(null, function () { document.execCommand("copy"); }).then(function () {
      button.textContent = "Copied";
      setTimeout(function () { button.textContent = said; }, 2000);
    });
  });
});
