// Shows times in the reader's time zone, or as relative times within a week, but on paper with the date and the zone.
// The title is in UTC.
(function () {
  var language = document.documentElement.lang;
  var relative = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
  var day = new Intl.DateTimeFormat(language, { day: "numeric", month: "long", year: "numeric" });
  var moment = new Intl.DateTimeFormat(language, {
    day: "numeric", month: "long", year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23"
  });
  var inUTC = new Intl.DateTimeFormat(language, {
    hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: "UTC"
  });
  var onPaper = new Intl.DateTimeFormat(language, {
    day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
    timeZoneName: "short"
  });
  var paper = matchMedia("print");
  var units = [["day", 86400], ["hour", 3600], ["minute", 60]];

  function ago(date) {
    if (paper.matches) { return onPaper.format(date); }
    var seconds = (date - Date.now()) / 1000;
    if (Math.abs(seconds) >= 7 * 86400) { return moment.format(date); }
    for (var i = 0; i < units.length; i++) {
      if (Math.abs(seconds) >= units[i][1]) {
        // Days in the future are rounded up: a day and a half from now is "in 2 days".
        var round = seconds > 0 && units[i][0] === "day" ? Math.ceil : Math.trunc;
        return relative.format(round(seconds / units[i][1]), units[i][0]);
      }
    }
    return seconds > 0 ? "in less than a minute" : "just now";
  }

  function write() {
    document.querySelectorAll("time[data-local]").forEach(function (element) {
      var date = new Date(element.dateTime);
      if (isNaN(date)) { return; }
      var kind = element.dataset.local;
      if (!element.title) {
        element.title = element.textContent + (kind === "day" ? ", " + inUTC.format(date) + " UTC" : "");
      }
      element.textContent = kind === "ago" ? ago(date) : (kind === "day" ? day : moment).format(date);
    });
  }

  write();
  setInterval(write, 60000);
  paper.addEventListener("change", write);
})();
