package app

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func (s *service) supporters() int {
	s.t.Helper()
	return s.rows("resource.supporters", "")
}

func TestWorker_CreatesSupporter(t *testing.T) {
	s := newWorker(t)
	_, f := s.form()
	one := s.accepted(f)
	if state := s.ended(one); state.Status != "processed" || len(state.Reasons) != 0 {
		t.Fatalf("%+v", state)
	}
	if n := s.Count(`select count(*) from resource.supporters p join resource.submissions s on s.supporter_id = p.id
		where s.id = $1 and p.tenant_id = s.tenant_id and p.email = 'ada@example.org'
			and p.phone = '+44 20 7946 0958' and p.name = 'Ada Okafor'`, one.ID); n != 1 {
		t.Errorf("%d supporters", n)
	}
	if n := s.Count(`select count(*) from resource.submissions where id = $1
		and consents @> '[{"field":"news","given":false},{"field":"privacy","given":true}]'
		and consents->1->>'noticeVersion' ~ '^[0-9a-f]{12}$'`, one.ID); n != 1 {
		t.Error("the consents are not stored with the version of their notice")
	}
}

func TestE6_SubmissionDoesNotChangeExistingSupporter(t *testing.T) {
	s := newWorker(t)
	h, f := s.form()
	s.ended(s.accepted(f))
	answers := goodAnswers()
	answers["name"], answers["phone"], answers["email"] = "Mallory", "00000", "ADA@example.ORG"
	again := s.acceptedAs(s.submit(f, nil, submissionOf(s.submissionToken(f), answers)))
	if state := s.ended(again); state.Status != "processed" {
		t.Fatalf("%+v", state)
	}
	if n := s.rows("resource.supporters", `name = 'Ada Okafor'
		and phone = '+44 20 7946 0958'`); n != 1 ||
		s.supporters() != 1 {
		t.Errorf("%d of %d", n, s.supporters())
	}
	_, elsewhere := s.workspace()
	s.ended(s.accepted(s.makeForm(elsewhere, allTypes)))
	if s.supporters() != 2 {
		t.Error("two workspaces share a supporter")
	}
	nameless := s.makeForm(
		h,
		`{"title":"T","allowedOrigins":[],"fields":[{"name":"idea","label":"Idea","type":"text"}]}`,
	)
	for range 2 {
		s.ended(s.acceptedAs(s.submit(nameless, nil, submissionOf(s.submissionToken(nameless), map[string]any{}))))
	}
	if s.supporters() != 4 {
		t.Errorf("%d supporters", s.supporters())
	}
}

// kept returns the Engage part of the store, which must not be used to add jobs.
func (s *service) kept() *postgres.Engage { return s.app.store.Engage(nil) }

func TestE5_RepeatedJobHasOneEffect(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, `{"title":"T","allowedOrigins":[],"fields":[{"name":"idea","label":"Idea","type":"text"}]}`)
	one := s.acceptedAs(s.submit(f, nil, submissionOf(s.submissionToken(f), map[string]any{"idea": "x"})))
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
	if s.supporters() != 1 || s.state(one).Status != "processed" {
		t.Fatalf("%d supporters, %+v", s.supporters(), s.state(one))
	}
	// Simulates a process that died after it committed its work and before it completed the job.
	s.Exec(
		"update river.river_job set state = 'running', attempt = 1, attempted_at = now() - interval '1 hour', " +
			"attempted_by = '{gone}'",
	)
	s.run()
	s.until(
		"the job is done",
		func() bool { return s.Count("select count(*) from river.river_job where state = 'completed'") == 1 },
	)
	if err := s.kept().Reject(context.Background(), workspaceID, one.ID, "late"); err != nil {
		t.Error(err)
	}
	if s.supporters() != 1 || s.state(one).Status != "processed" {
		t.Errorf("%d supporters, %+v", s.supporters(), s.state(one))
	}
}

// holdSupporters blocks the insertion of supporters until released.
func (s *service) holdSupporters() (release func()) {
	s.t.Helper()
	owner, err := pgx.Connect(context.Background(), s.Database.Owner)
	if err != nil {
		s.t.Fatal("connect as the owner")
	}
	release = sync.OnceFunc(func() { _ = owner.Close(context.Background()) }) // ends its transaction
	s.t.Cleanup(release)
	if _, err := owner.Exec(context.Background(), "begin; lock table resource.supporters in share mode"); err != nil {
		s.t.Fatal(err)
	}
	return release
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
	retry := func(failed int) { // makes the try after so many failures due now, and skips to the ninth
		s.until("the job has failed", func() bool {
			return s.Count(`select count(*) from river.river_job
				where state in ('available', 'retryable') and attempt = $1`, failed) == 1
		})
		if state := s.state(one); state.Status != "accepted" {
			t.Fatalf("after %d tries: %+v", failed, state)
		}
		s.Exec("update river.river_job set state = 'available', scheduled_at = now(), attempt = greatest(attempt, 8)")
	}
	retry(1)
	retry(9)
	s.until("the submission is finished", func() bool { return s.state(one).Status != "accepted" })
	state := s.state(one)
	if state.Status != "rejected" || len(state.Reasons) != 1 || state.Reasons[0] != engage.ReasonFailed {
		t.Fatalf("%+v", state)
	}
	if n := s.Count("select attempt::int from river.river_job"); n != 10 {
		t.Errorf("after %d tries", n)
	}
}

// workerVariable makes this test binary a worker process for the database that it names.
const workerVariable = "ALMONER_TEST_WORKER_DATABASE"

// testsAtOnce is more than the number of CPUs, since tests mostly wait for servers. Tests that measure time are not
// parallel: they run one by one, before all others.
const testsAtOnce = "4"

func TestMain(m *testing.M) {
	if database := os.Getenv(workerVariable); database != "" {
		work(database)
		return
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == flag.Lookup("test.parallel").DefValue {
		_ = flag.Set("test.parallel", testsAtOnce)
	}
	code := m.Run()
	closeSharedBrowser()
	os.Exit(code)
}

func work(database string) {
	app, err := New(context.Background(), Config{
		BaseURL:     base,
		DatabaseURL: credential.Secret(database),
		Connections: 8,
		Worker:      true,
		JWKSURL:     base,
		Keys:        goodKey,
	}, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		panic(err)
	}
	if err := app.Work(context.Background(), nil); err != nil {
		panic(err)
	}
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
		response, err := http.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
	says("/healthz", 200)
	says("/readyz", 200)
	says(formsPath, 404) // the worker does not serve the API
	if state := s.ended(s.accepted(f)); state.Status != "processed" {
		t.Errorf("%+v", state)
	}
	w.freeze()
	says("/healthz", 200)
	says("/readyz", 503)
	w.thaw()
	stop()
}

// startWorker starts a worker process; kill kills it, like a crash.
func (s *service) startWorker() (kill func()) {
	s.t.Helper()
	program, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	process := exec.Command(program)
	process.Env = append(os.Environ(), workerVariable+"="+s.Database.Resourceapi)
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = process.Process.Kill()
		_ = process.Wait() // "signal: killed"
	})
	s.t.Cleanup(kill)
	return kill
}

func TestWorker_KilledProcessLosesNoSubmission(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, h := s.workspace()
	f := s.makeForm(h, `{"title":"T","allowedOrigins":[],"fields":[{"name":"idea","label":"Idea","type":"text"}]}`)

	// The worker is blocked in its work: it has taken the submission and waits to add the supporter.
	release := s.holdSupporters()
	kill := s.startWorker()
	const sent = 3
	var all []sentSubmission
	for range sent {
		all = append(
			all,
			s.acceptedAs(s.submit(f, nil, submissionOf(s.submissionToken(f), map[string]any{"idea": "x"}))),
		)
	}
	s.until("a worker is held", s.held)
	kill()
	release()
	s.until("the dead worker's transaction is gone", func() bool {
		return s.Count("select count(*) from "+testkit.Locks+" where relation = 'resource.supporters'::regclass") == 0
	})
	if s.supporters() != 0 || s.rows("resource.submissions", "status = 'accepted'") != sent {
		t.Fatal("the killed worker did part of the work")
	}
	if s.Count("select count(*) from river.river_job where state = 'running'") == 0 {
		t.Fatal("the killed worker had taken no job")
	}
	// The queue restarts the jobs of a dead process after a minute, and elects another leader: backdate both.
	s.Exec("update river.river_leader set expires_at = elected_at + interval '1 microsecond'")
	s.Exec("update river.river_job set attempted_at = now() - interval '2 minutes' where state = 'running'")
	s.Exec("update river.river_job set scheduled_at = now()")
	s.startWorker()
	for _, one := range all {
		if state := s.ended(one); state.Status != "processed" {
			t.Errorf("%+v", state)
		}
	}
	if s.supporters() != sent {
		t.Errorf("%d supporters of %d submissions", s.supporters(), sent)
	}
}

func TestSubmit_AcceptedSubmissionAlwaysHasJob(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	_, f := s.form()
	s.Exec("revoke insert on river.river_job from almoner_resourceapi")
	token := s.submissionToken(f)
	s.submit(f, nil, submissionOf(token, goodAnswers())).expect(t, 500, "INTERNAL", "")
	if s.submissions() != 0 {
		t.Error("accepted without a job")
	}
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
		if got := s.Count("select priority from river.river_job order by id offset $1 limit 1", place); got != want {
			t.Errorf("job %d has priority %d, want %d", place, got, want)
		}
	}
}
