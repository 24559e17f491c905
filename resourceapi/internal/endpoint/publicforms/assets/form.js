// Sends the form in the background, so that the page keeps the answers if there is no connection.
(function () {
  "use strict";
  var form = document.querySelector("form");
  var offline = document.getElementById("offline");
  if (!form || !offline) return;
  var sending = false;
  form.addEventListener("submit", function (event) {
    event.preventDefault();
    if (sending) return;
    sending = true;
    offline.hidden = true;
    fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) }).then(
      function (response) {
        // A redirect leads to the page of the accepted answers. Any other response accepted nothing: the browser sends
        // the form again and shows the response.
        if (response.redirected) location.replace(response.url);
        else form.submit();
      },
      function () {
        sending = false;
        offline.hidden = false;
        offline.scrollIntoView({ block: "nearest" });
      }
    );
  });
  // The back button may show the page as it was left.
  window.addEventListener("pageshow", function () { sending = false; });
})();
