package app

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"flag"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

func (s *service) supporters() int {
	s.t.Helper()
	return s.rows("resource.supporters", "")
}

func TestE6_SubmissionDoesNotChangeExistingSupporter(t *testing.T) {
	s := newWorker(t)
	h, f := s.form()
	s.processed(s.accepted(f))
	s.wantsRows(1, "resource.submissions", `supporter_id in (select id from resource.supporters where {mine})
		and consents @> '[{"field":"news","given":false},{"field":"privacy","given":true}]'
		and consents->1->>'noticeVersion' ~ '^[0-9a-f]{12}$'`)
	mallory := goodAnswersWith("email", "ADA@example.ORG")
	mallory["name"], mallory["phone"] = "Mallory", "00000"
	s.processed(s.sends(f, mallory))
	s.wantsRows(1, "resource.supporters", `name = 'Ada Okafor' and phone = '+44 20 7946 0958'
		and email = 'ada@example.org'`)
	s.wantsRows(1, "resource.supporters", "")
	elsewhere := s.workspace()
	s.processed(s.accepted(s.makeForm(elsewhere, allTypes)))
	s.wantsRows(2, "resource.supporters", "") // two workspaces share none
	nameless := s.makeForm(h, ideaForm)
	for range 2 {
		s.processed(s.sends(nameless, map[string]any{}))
	}
	s.wantsRows(4, "resource.supporters", "")
}

// processOne does the worker's work for one submission, and leaves the others of its workspace waiting.
func (s *service) processOne(id uuid.UUID) {
	s.t.Helper()
	const others = `resource.submissions s set retry_at = $2 from resource.submissions one
		where one.id = $1 and s.tenant_id = one.tenant_id and s.status = 'accepted' and s.id <> $1`
	s.Exec("update "+others, id, time.Now().Add(time.Hour))
	one := orFail(s.kept().SubmissionStatus(s.t.Context(), uuid.Nil, id))(s.t)
	orFail(s.kept().ProcessWaiting(s.t.Context(), one.WorkspaceID, time.Time{}, 100))(s.t)
	s.Exec("update "+others, id, nil)
}

// kept returns the Engage part of the store.
func (s *service) kept() *postgres.Engage { return s.app.store.Engage() }

func TestE5_RepeatedProcessingHasOneEffect(t *testing.T) {
	s := newOwn(t)
	h := s.workspace()
	f := s.makeForm(h, ideaForm)
	one := s.sends(f, map[string]any{"idea": "x"})
	wantsOnce := func() {
		t.Helper()
		s.wantsRows(1, "resource.supporters", "")
		if state := s.state(one); state.Status != "processed" {
			t.Fatalf("%+v", state)
		}
	}
	release := s.holdSupporters()
	var group sync.WaitGroup
	var finished atomic.Int32
	process := func() {
		n, err := s.kept().ProcessWaiting(context.Background(), h.workspace(), time.Time{}, 100)
		finished.Add(int32(n))
		if err != nil {
			t.Error(err)
		}
	}
	for range 4 {
		group.Go(process)
	}
	s.awaitLocks(1) // one run is held within its work; the others leave the row to it
	release()
	group.Wait()
	process() // as if another process had found it before
	if n := finished.Load(); n != 1 {
		t.Errorf("%d runs have finished the submission", n)
	}
	wantsOnce()
}

// holdSupporters blocks the insertion of supporters until released.
func (s *service) holdSupporters() (release func()) {
	s.t.Helper()
	owner := postgrestest.Connect(s.t, s.Database.Owner)
	orFail(owner.Exec(context.Background(), "begin; lock table resource.supporters in share mode"))(s.t)
	return func() { _ = owner.Close(context.Background()) } // ends its transaction
}

// held reports whether a session waits to add a supporter.
func (s *service) held() bool {
	return s.Count(`select count(*) from `+testkit.Locks+`
		where relation = 'resource.supporters'::regclass and not granted`) > 0
}

func (s *service) until(what string, happened func() bool) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			log := s.log.String() // of other tests too
			s.t.Log(log[max(0, len(log)-4000):])
		}
	}()
	await.True(s.t, what, happened)
}

func TestWorker_RejectsAfterRepeatedFailures(t *testing.T) {
	s := newOwn(t)
	_, f := s.form()
	one := s.accepted(f)
	s.Exec("revoke insert on resource.supporters from almoner_resourceapi")
	trapped := s.accepted(f) // needs no supporter
	s.Exec("update resource.submissions set trapped = true where id = $1", trapped.ID)
	s.run()
	for _, failures := range []int{1, 9} { // makes the next try due now, and skips to the ninth
		s.until("the submission has failed", func() bool {
			return s.Count(`select count(*) from resource.submissions
				where failures = $1 and retry_at > now()`, failures) == 1
		})
		if state := s.state(one); state.Status != "accepted" {
			t.Fatalf("after %d tries: %+v", failures, state)
		}
		s.Exec("update resource.submissions set failures = greatest(failures, 8), retry_at = now() where failures > 0")
	}
	state := s.ended(one)
	if state.Status != "rejected" || !slices.Equal(state.Reasons, []string{engage.ReasonFailed}) {
		t.Fatalf("%+v", state)
	}
	state = s.ended(trapped)
	if state.Status != "rejected" || !slices.Equal(state.Reasons, []string{engage.ReasonTrapped}) {
		t.Fatalf("beside one that fails: %+v", state)
	}
}

// testsAtOnce is more than the number of CPUs, since tests mostly wait for servers. Tests that measure time are not
// parallel: they run one by one, before all others.
const testsAtOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == flag.Lookup("test.parallel").DefValue {
		_ = flag.Set("test.parallel", testsAtOnce)
	}
	code := m.Run()
	closeSharedBrowser()
	os.Exit(code)
}

func TestWorker_ServesProbes(t *testing.T) {
	s := newOwn(t)
	_, f := s.form()
	var w *wire
	at, stop := s.work(s.build(through(t, &w), func(c *Config) { c.WorkerListen = "127.0.0.1:0" }))
	address := <-at
	says := func(path string, want int) {
		t.Helper()
		response := orFail(http.Get(address + path))(t)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
	says("/healthz", 200)
	says("/readyz", 200)
	says(formsPath, 404) // the worker does not serve the API
	s.processed(s.accepted(f))
	w.freeze()
	says("/healthz", 200)
	says("/readyz", 503)
	w.thaw()
	stop()
}

func TestWorker_RecoversFromPostgresOutage(t *testing.T) {
	s := newOwn(t, silently)
	_, f := s.form()
	first := s.accepted(f)
	var w *wire
	worker := s.build(through(t, &w)) // the API connects to Postgres directly
	w.freeze()
	s.work(worker)
	s.until("the first attempt to connect has failed", func() bool {
		return strings.Contains(s.log.String(), "submissions not processed; retrying")
	})
	if state := s.state(first); state.Status != "accepted" {
		t.Fatalf("%+v without Postgres", state)
	}
	w.thaw()
	s.processed(first)
	w.cut()
	s.processed(s.accepted(f))
}

// A worker whose connections are cut, and which gets no others, is to Postgres like one that was killed.
func TestWorker_KilledProcessLosesNoSubmission(t *testing.T) {
	s := newOwn(t)
	h := s.workspace()
	f := s.makeForm(h, ideaForm)

	// The worker is blocked in its work: it has taken the submission and waits to add the supporter.
	release := s.holdSupporters()
	var w *wire
	s.work(s.build(waitsFor(testkit.StoreWait/2), through(t, &w))) // a job that is held must not fail before the cut
	all := make([]sentSubmission, 3)
	for i := range all {
		all[i] = s.sends(f, map[string]any{"idea": "x"})
	}
	s.until("a worker is held", s.held)
	w.freeze()
	w.cut()
	release()
	s.until("the dead worker's transaction is gone", func() bool {
		return s.Count("select count(*) from "+testkit.Locks+" where relation = 'resource.supporters'::regclass") == 0
	})
	s.wantsRows(0, "resource.supporters", "")
	s.wantsRows(len(all), "resource.submissions", "status = 'accepted'")
	s.work(s.app)
	for _, one := range all {
		s.processed(one)
	}
	s.wantsRows(len(all), "resource.supporters", "")
	w.thaw() // the first worker ends sooner when it can
}

// newMasterKey returns a new value of ALMONER_KEYS.
func newMasterKey() string {
	return base64.RawURLEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32])
}

// work runs the App as a worker process until the test ends. It returns its address, if it has one, and how to stop it.
func (s *service) work(worker *App) (address <-chan string, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	listening := make(chan string, 1)
	var running sync.WaitGroup
	running.Go(func() {
		err := worker.Work(ctx, func(address net.Addr) { listening <- "http://" + address.String() })
		if err != nil {
			s.t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	s.t.Cleanup(stop)
	return listening, stop
}

// A worker follows its file of keys: it reads a secret that another process sealed with a key that was added later.
func TestWorker_FollowsFileOfKeys(t *testing.T) {
	r := newReceiver(t, nil)
	s := newOwn(t, trustsReceivers)
	old, fresh, file := newMasterKey(), newMasterKey(), filepath.Join(t.TempDir(), "keys")
	write := func(content string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(content), 0o600))
	}
	write(old)
	s.work(s.build(func(c *Config) {
		c.Keys = credential.Secret(old)
		c.reading.Values = []envconf.Value{{Setting: "ALMONER_KEYS", From: envconf.FromFile, Path: file}}
	}))
	s.serve(s.build(func(c *Config) { c.Keys = credential.Secret(fresh) }))
	h := s.developer()
	made := s.addWebhook(h, r.URL, "programme.created")
	s.create(h, `{"name":"One"}`)
	await.True(t, "an attempt without the key", s.failures(1))
	if got := r.all(); len(got) != 0 {
		t.Fatalf("%d deliveries without the key", len(got))
	}
	write(fresh + "," + old)
	await.True(t, "the delivery with the new key", func() bool {
		s.retryNow()
		return len(r.all()) == 1
	})
	if !r.all()[0].signedWith(t, made.Secret) {
		t.Error("the delivery is not signed with the secret")
	}
}
