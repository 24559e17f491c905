// A button beside each password shows what was typed. A form is sent with its passwords hidden again, so that the browser
// keeps none of them among the texts that it suggests.
document.querySelectorAll('input[type="password"]').forEach(function (field) {
  var button = document.createElement("button");
  button.type = "button";
  button.className = "button reveal";

  function show(shown) {
    field.type = shown ? "text" : "password";
    button.textContent = shown ? "Hide" : "Show";
    button.setAttribute("aria-label", shown ? "Hide the password" : "Show the password");
  }

  show(false);
  button.addEventListener("click", function () { show(field.type === "password"); });
  field.form.addEventListener("submit", function () { show(false); });
  field.after(button);
});
