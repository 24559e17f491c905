package app

import (
	"context"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/credential"
)

func TestTheWorkerWaitsForPostgresAndOutlivesLosingIt(t *testing.T) {
	s := newEngageService(t)
	_, h := s.workspace()
	f := s.makeForm(h, allTypes)
	first := s.accepted(f)
	w, through := newWire(t, s.Database.Resourceapi)
	s.config.DatabaseURL = credential.Secret(through)

	w.freeze()
	api := s.app // goes on straight to Postgres
	s.open(base)
	work, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	worker := s.app
	go func() { _ = worker.Work(work, nil); close(ended) }()
	defer func() { stop(); <-ended }()
	s.app = api
	time.Sleep(3 * time.Second) // the first try to connect has failed by now
	if state := s.state(first); state.Status != "accepted" {
		t.Fatalf("%+v without Postgres", state)
	}
	w.thaw()
	if state := s.ended(first, 60*time.Second); state.Status != "processed" {
		t.Errorf("%+v", state)
	}
	w.cut()
	if state := s.ended(s.accepted(f), 60*time.Second); state.Status != "processed" {
		t.Errorf("%+v", state)
	}
}

func TestPublicFormsSay503WithoutPostgres(t *testing.T) {
	s := newEngageService(t)
	_, h := s.workspace()
	f := s.makeForm(h, allTypes)
	body, path := submissionOf(s.submissionToken(f), goodAnswers()), s.accepted(f).StatusURL[len(base):]
	w, through := newWire(t, s.Database.Resourceapi)
	s.config.DatabaseURL = credential.Secret(through)
	s.open(base)
	s.server.Config.Handler = s.app.Handler
	w.freeze()
	for _, call := range []func() answer{
		func() answer { return s.get(f.path(), nil) }, func() answer { return s.submit(f, nil, body) },
		func() answer { return s.get(path, nil) }, func() answer { return s.get(f.path()+"/embed", nil) },
		func() answer { return s.submit(f, header{"Idempotency-Key": "k"}, body) },
	} {
		if a := call(); a.Status != 503 || a.code(t) != "UNAVAILABLE" || a.Header.Get("Retry-After") == "" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	w.thaw()
	w.cut()
	s.acceptedAs(s.submit(f, nil, body))
}
