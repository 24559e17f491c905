// A button beside each password shows what was typed. A form is sent with its passwords hidden again, so that the browser
// keeps none of them among the texts that it suggests.
document.querySelectorAll('input[type="password"]').forEach(function (field) {
  var button = document.createElement("input"); // programs press the first button element of a form
  button.type = "button";
  button.className = "button reveal";

  function show(shown) {
    field.type = shown ? "text" : "password";
    button.value = shown ? "Hide" : "Show";
    button.setAttribute("aria-label", shown ? "Hide the password" : "Show the password");
  }

  show(false);
  button.addEventListener("click", function () { show(field.type === "password"); });
  field.form.addEventListener("submit", function () { show(false); });
  field.after(button);
});

// The page for a forgotten password starts with the address that was typed on the sign-in page.
(function () {
  var field = document.getElementById("email");
  var link = document.querySelector('a[href="/login/forgotten"]');

  function stored(use) {
    try { return use(sessionStorage); } catch (denied) { return null; } // the browser stores nothing for this site
  }

  if (field && link) {
    link.addEventListener("click", function () {
      stored(function (storage) { storage.setItem("email", field.value); });
    });
  } else if (field && document.body.dataset.page === "forgotten") {
    field.value = field.value || stored(function (storage) { return storage.getItem("email"); }) || "";
  }
})();
