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
	"sync"
	"testing"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
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
	_, elsewhere := s.workspace()
	s.processed(s.accepted(s.makeForm(elsewhere, allTypes)))
	s.wantsRows(2, "resource.supporters", "") // two workspaces share none
	nameless := s.makeForm(h, ideaForm)
	for range 2 {
		s.processed(s.sends(nameless, map[string]any{}))
	}
	s.wantsRows(4, "resource.supporters", "")
}

// kept returns the Engage part of the store, which must not be used to add jobs.
func (s *service) kept() *postgres.Engage { return s.app.store.Engage(nil) }

func TestE5_RepeatedJobHasOneEffect(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.workspace()
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
	for range 4 {
		group.Go(func() {
			if err := s.kept().Process(context.Background(), workspaceID, one.ID); err != nil {
				t.Error(err)
			}
		})
	}
	s.awaitLocks(2) // one run is held within its work, another waits for its row, and the rest wait for a turn
	release()
	group.Wait()
	wantsOnce()
	// Simulates a process that died after it committed its work and before it completed the job.
	s.Exec(`update river.river_job set state = 'running', attempt = 1, attempted_at = now() - interval '1 hour',
		attempted_by = '{gone}'`)
	s.run()
	s.until("the job is done", func() bool {
		return s.Count("select count(*) from river.river_job where state = 'completed'") == 1
	})
	must(t, s.kept().Reject(context.Background(), workspaceID, one.ID, "late"))
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
	t.Parallel()
	s := ownService(t)
	_, f := s.form()
	one := s.accepted(f)
	s.Exec("revoke insert on resource.supporters from almoner_resourceapi")
	s.run()
	for _, failed := range []int{1, 9} { // makes the try after so many failures due now, and skips to the ninth
		s.until("the job has failed", func() bool {
			return s.Count(`select count(*) from river.river_job
				where state in ('available', 'retryable') and attempt = $1`, failed) == 1
		})
		if state := s.state(one); state.Status != "accepted" {
			t.Fatalf("after %d tries: %+v", failed, state)
		}
		s.Exec("update river.river_job set state = 'available', scheduled_at = now(), attempt = greatest(attempt, 8)")
	}
	state := s.ended(one)
	if state.Status != "rejected" || !slices.Equal(state.Reasons, []string{engage.ReasonFailed}) {
		t.Fatalf("%+v", state)
	}
	s.Wants(10, "select attempt::int from river.river_job")
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
	t.Parallel()
	s := ownService(t)
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

// A worker whose connections are cut, and which gets no others, is to Postgres like one that was killed.
func TestWorker_KilledProcessLosesNoSubmission(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, h := s.workspace()
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
	if s.Count("select count(*) from river.river_job where state = 'running'") == 0 {
		t.Fatal("the killed worker had taken no job")
	}
	// The queue restarts the jobs of a dead process after a minute, and elects another leader: backdate both.
	s.Exec("update river.river_leader set expires_at = elected_at + interval '1 microsecond'")
	s.Exec("update river.river_job set attempted_at = now() - interval '2 minutes' where state = 'running'")
	s.Exec("update river.river_job set scheduled_at = now()")
	s.work(s.app)
	for _, one := range all {
		s.processed(one)
	}
	s.wantsRows(len(all), "resource.supporters", "")
	w.thaw() // the first worker ends sooner when it can
}

func TestSubmit_AcceptedSubmissionAlwaysHasJob(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, f := s.form()
	s.Exec("revoke insert on river.river_job from almoner_resourceapi")
	token := s.submissionToken(f)
	s.submit(f, nil, submissionOf(token, goodAnswers())).expect(t, 500, "INTERNAL", "")
	s.wantsRows(0, "resource.submissions", "")
	s.Exec("grant insert on river.river_job to almoner_resourceapi")
	s.acceptedAs(s.submit(f, nil, submissionOf(token, goodAnswers())))
}

// F17: River runs priority 1 first. A workspace with a flooded form waits behind one with few submissions.
func TestSubmissions_FloodedWorkspaceHasLowerPriority(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, h := s.workspace()
	flooded := s.makeForm(h, allTypes)
	s.accepted(flooded)
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped)
		select gen_random_uuid(), tenant_id, form_id, gen_random_uuid(), answers, consents, trapped
		from resource.submissions cross join generate_series(1, 300)`)
	s.accepted(flooded)
	_, h = s.workspace()
	s.accepted(s.makeForm(h, allTypes))
	for place, want := range []int{1, 4, 1} {
		s.Wants(want, "select priority from river.river_job order by id offset $1 limit 1", place)
	}
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
	t.Parallel()
	r := newReceiver(t, nil)
	s := ownService(t, trustsReceivers)
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
	workspaceID, user := s.member(perm.AccountAPIAccess, perm.ProgrammesRead)
	master := orFail(seal.ParseKeys(credential.Secret(fresh)))(t)
	sealing := orFail(webhook.NewKeys(master))(t)
	secret := orFail(webhook.NewSecret(rand.Reader))(t)
	id := uuid.New()
	sealed := orFail(webhook.Seal(sealing.Public(), id, secret))(t)
	s.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at)
		values ($1, $2, $3, $4, '{programme.created}', $5, $6, 0, now())`,
		id, workspaceID, user, r.URL, sealed.Secret, sealed.Key)
	s.Programmes(workspaceID, 1)
	within(t, "an attempt without the key", s.failures(1))
	if got := r.all(); len(got) != 0 {
		t.Fatalf("%d deliveries without the key", len(got))
	}
	write(fresh + "," + old)
	within(t, "the delivery with the new key", func() bool {
		s.retryNow()
		return len(r.all()) == 1
	})
	verifier := orFail(standardwebhooks.NewWebhook(secret.Reveal()))(t)
	if got := r.all()[0]; verifier.Verify([]byte(got.Body), got.Header) != nil {
		t.Error("the delivery is not signed with the secret")
	}
}
