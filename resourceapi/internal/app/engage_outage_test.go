package app

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestWorker_RecoversFromPostgresOutage(t *testing.T) {
	t.Parallel()
	s := ownService(t, silently)
	_, f := s.form()
	first := s.accepted(f)
	var w *wire
	worker := s.build(through(t, &w)) // the API connects to Postgres directly
	w.freeze()
	s.work(worker)
	s.until("the first attempt to connect has failed", func() bool {
		return strings.Contains(s.log.String(), "submissions not processed and webhooks not sent; retrying")
	})
	if state := s.state(first); state.Status != "accepted" {
		t.Fatalf("%+v without Postgres", state)
	}
	w.thaw()
	if state := s.ended(first); state.Status != "processed" {
		t.Errorf("%+v", state)
	}
	w.cut()
	if state := s.ended(s.accepted(f)); state.Status != "processed" {
		t.Errorf("%+v", state)
	}
}

func TestPublicForms_Return503WithoutPostgres(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, f := s.form()
	body, path := submissionOf(s.submissionToken(f), goodAnswers()), s.accepted(f).StatusURL[len(base):]
	var w *wire
	s.serve(s.build(silently, through(t, &w)))
	w.freeze()
	requests{
		"form":            func() answer { return s.get(f.path(), nil) },
		"submission":      func() answer { return s.submit(f, nil, body) },
		"status":          func() answer { return s.get(path, nil) },
		"submit with key": func() answer { return s.submit(f, header{"Idempotency-Key": "k"}, body) },
	}.unavailable(t)
	w.thaw()
	w.cut()
	var last answer
	s.until("the form is accepted again", func() bool { last = s.submit(f, nil, body); return last.Status != 503 })
	s.acceptedAs(last)
}

// A user who submits a form during an outage gets a page that resubmits the answers with one click.
func TestPublicPage_ReturnsAnswersDuringOutage(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, f := s.form()
	var w *wire
	s.serve(s.build(silently, through(t, &w), func(c *Config) {
		c.BaseURL = local(s.server) // so that the browser's Origin is the page's own
	}))
	tab, button := newBrowser(t), chromedp.CSS("button[type=submit]")
	do := func(steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(tab, steps...); err != nil {
			t.Fatal(err)
		}
	}
	says := func(text string) {
		t.Helper()
		s.until("the page says: "+text, func() bool {
			return strings.Contains(evaluate[string](tab, t, "document.body ? document.body.innerText : ''"), text)
		})
	}
	do(
		chromedp.Navigate(local(s.server)+f.path()+"/embed"),
		chromedp.SendKeys(chromedp.CSS("#f0"), `Ada "Okafor" <a@b>`),
		chromedp.SendKeys(chromedp.CSS("#f1"), "ada@example.org"),
		chromedp.SendKeys(chromedp.CSS("#f7"), "One line.\nAnother line."),
		chromedp.Click(chromedp.CSS("#f6-2")), chromedp.Click(chromedp.CSS("#f9")),
	)
	do(s.asIfSlowlyFilled(f))

	w.freeze()
	fields := goodFields(s.filled(f))
	pages := requests{
		"opened":    func() answer { return s.get(f.path()+"/embed", nil) },
		"sent":      func() answer { return s.sendPage(f, nil, fields) },
		"elsewhere": func() answer { return s.sendPage(f, header{"Origin": otherOrigin}, fields) },
		"empty":     func() answer { return s.sendPage(f, nil, nil) },
		"accepted":  func() answer { return s.get(f.path()+"/embed?submission=x&token=y", nil) },
	}.send()
	opened, sent := pages["opened"], pages["sent"]
	for page, heading := range map[*answer]string{
		&opened: "We cannot show this form at the moment",
		&sent:   "We cannot accept your answers at the moment",
	} {
		page.wants(t, 503, "<h1>"+heading+"</h1>").
			header(t, "Content-Type", "text/html; charset=utf-8").
			header(t, "Retry-After", "*")
	}
	if !strings.Contains(s.log.String(), `"msg":"request failed","status":503,"cause"`) {
		t.Errorf("the log does not say why: %s", s.log)
	}
	pages["elsewhere"].wants(t, 503).lacks(t, "<form")
	pages["empty"].wants(t, 503).lacks(t, "<form", "still on this page")
	pages["accepted"].wants(t, 503, "We received your answers").lacks(t, "Open the form again")
	if strings.Contains(opened.Body, "<form") || !strings.Contains(opened.Body, "Open the form again") {
		t.Errorf("%s", opened.Body)
	}
	do(chromedp.Click(button))
	says("Your answers are still on this page")

	w.thaw()
	s.eventually(t, 200, func() answer { return s.get(f.path(), nil) })
	do(chromedp.Click(button))
	says("We received your answers")
	if n := s.Count(`select count(*) from resource.submissions
		where {mine} and answers @> '{"name":"Ada \"Okafor\" <a@b>","email":"ada@example.org","days":["Friday"],
			"about":"One line.\nAnother line.","privacy":true}'`); n != 1 {
		t.Error("the stored answers are not those typed")
	}
}
