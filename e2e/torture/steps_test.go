package torture

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A step is a point at which a process may be killed: in the grant store, between Redis's decision and the update of
// Postgres, and while what was accepted with 202 is processed, submissions by the worker and imports by resourceapi.
type step string

const (
	afterInsert     step = "after the grant's insert"
	afterIssue      step = "after the code was issued"
	afterExchange   step = "after the exchange in Redis"
	afterActivation step = "after the exchange in Postgres"
	afterRotation   step = "after the rotation in Redis"
	afterAdvance    step = "after the rotation in Postgres"
	afterReplay     step = "after a replay in Redis"
	afterRevocation step = "after the revocation in Postgres"

	submissionTaken     step = "after a submission was taken"
	submissionDone      step = "before a submission's commit"
	submissionCommitted step = "after a submission's commit"
	importTaken         step = "after an import was taken"
	importDone          step = "before an import's commit"
	importCommitted     step = "after an import's commit"

	submissionsFile = "resourceapi/internal/store/postgres/processing.go"
	importsFile     = "resourceapi/internal/store/postgres/imports.go"

	stepsVariable   = "TORTURE_STEPS"
	deathImports    = "import (\n\t\"os\"\n\t\"path/filepath\"\n\t\"syscall\"\n"
	deathDefinition = "\n\nfunc dieAt(step string) {\n" +
		"\tif os.Remove(filepath.Join(os.Getenv(\"" + stepsVariable + "\"), step)) == nil {\n" +
		"\t\t_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)\n\t\tselect {}\n\t}\n}\n"
)

// deaths inserts a kill point at each step: a process that finds a file with the step's name kills itself.
func deaths() []harness.Fault {
	die := func(s step) string { return "dieAt(\"" + string(s) + "\")\n" }
	behind := func(file, text, inserted string) []harness.Fault { return change(file, text, text+inserted) }
	before := func(file, text, inserted string) []harness.Fault { return change(file, text, inserted+text) }
	atFirstOrLater := func(exchange, rotation step) string {
		return "if step.Generation == 1 {\n" + die(exchange) + "} else {\n" + die(rotation) + "}\n"
	}
	decided, stored := atFirstOrLater(afterExchange, afterRotation), atFirstOrLater(afterActivation, afterAdvance)
	unlessFailed := func(s step) string { return "if t.err == nil {\n" + die(s) + "}\n" }
	return slices.Concat(
		change(grantsFile, "import (\n", deathImports),
		before(grantsFile, "// A Service stores grants in both stores", deathDefinition),
		behind(grantsFile, "	if result != OK {\n		return \"\", ErrAlreadyUsed\n	}\n", die(afterIssue)),
		before(grantsFile, "	return secret, nil\n", die(afterInsert)),
		// A request of a public client is decided directly.
		behind(exchangesFile, "	if !decided {\n		return Issued{}, false, err\n	}\n", decided),
		behind(exchangesFile, "	if done {\n", stored),
		behind(exchangesFile, "	if err := s.refuseResult(ctx, snapshot, result, r); err != nil {\n"+
			"		return Issued{}, err\n	}\n", decided),
		before(exchangesFile, "	return snapshot.issue(next.secrets[0]), nil\n", stored),
		behind(exchangesFile, "	case Reused, Replay:\n", "if result == Replay {\n"+die(afterReplay)+"}\n"),
		before(grantsFile, "	s.PropagateRevocation(ctx, g.ID, g.Ends, reason)\n	return nil\n",
			die(afterRevocation)),

		change(submissionsFile, "import (\n", deathImports),
		before(submissionsFile, "// Submissions with the status", deathDefinition),
		before(submissionsFile, "	finished, err = e.finish(ctx, workspaceID, all, (*transaction).process)\n",
			die(submissionTaken)),
		behind(submissionsFile, "	finished, err = e.finish(ctx, workspaceID, all, (*transaction).process)\n",
			die(submissionCommitted)),
		behind(submissionsFile, "ids, created, states, supporters, reasons, at)\n", unlessFailed(submissionDone)),
		behind(importsFile, "		if taken = t.takeImport(workspaces); taken != nil {\n", die(importTaken)),
		behind(importsFile, "		taken.workspaceID, taken.id, string(status), rows, wrong)\n",
			unlessFailed(importDone)),
		before(importsFile, "	if err != nil && taken != nil {\n",
			"if taken != nil && err == nil {\n"+die(importCommitted)+"}\n"),
	)
}

// A stage is a product whose processes are killed at marked steps.
type stage struct {
	site
	running *stack.Stack
	steps   string
}

func TestKill_AtNamedStepsLeavesConsistentState(t *testing.T) {
	parallelIfShort(t)
	times := harness.Rounds(1, 50)
	harness.Record(t, "%d kills at each of 14 steps: 8 of authserver, 3 of the worker, 3 of resourceapi", times)
	steps := t.TempDir()
	running := harness.Private(t, harness.Options{
		Worker:   true,
		Binaries: harness.Broken(t, deaths()...),
		Settings: map[string]string{stepsVariable: steps},
	})
	s := stage{newSite(t, running), running, steps}
	for range times {
		t.Run("approval", s.diesApproving)
		t.Run("exchange", s.diesExchanging)
		t.Run("refresh", s.diesRefreshing)
		t.Run("replay", s.diesAtAReplay)
		t.Run("revocation", s.diesRevoking)
	}
	t.Run("commands", func(t *testing.T) { s.dieAtWork(t, times) })
}

// mark makes the first process that reaches the step kill itself. The returned file is gone once that has happened.
func (s stage) mark(t *testing.T, at step) (file string) {
	t.Helper()
	file = filepath.Join(s.steps, string(at))
	must(t, os.WriteFile(file, nil, 0o600))
	return file
}

// dies sends a request during which authserver is killed at the step, and restarts authserver.
func (s stage) dies(t *testing.T, at step, send func() (harness.Answer, error)) {
	t.Helper()
	file := s.mark(t, at)
	answer, err := send()
	if err == nil && answer.Status < http.StatusInternalServerError {
		t.Fatalf("%s: a response from a killed process:\n%s", at, answer)
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatalf("no process was killed %s", at)
	}
	must(t, s.running.Authservers[0].Restart(t.Context()))
}

// diesApproving is F1 and F2: the user tries again on the page that is still open.
func (s stage) diesApproving(t *testing.T) {
	for _, at := range []step{afterIssue, afterInsert} {
		attempt := s.connector.Begin()
		page := s.owner.Consent(t, attempt.Query)
		s.dies(t, at, func() (harness.Answer, error) {
			answered, err := trySubmit(t, s.owner, page.DecisionForm(t, "approve"))
			return answered.Answer, err
		})
		tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t)
		s.connector.WantsWorking(t, tokens)
	}
}

// diesExchanging is F3 and F4: no caller has or gets a token for that code.
func (s stage) diesExchanging(t *testing.T) {
	for _, at := range []step{afterExchange, afterActivation} {
		attempt := s.connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, s.owner))
		s.dies(t, at, func() (harness.Answer, error) { return attempt.TryPost(t, form) })
		attempt.Post(t, form).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		attempt.Post(t, form).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
}

// diesRefreshing is F5 and F6: the client that lost the response presents a superseded token, and the user consents
// again.
func (s stage) diesRefreshing(t *testing.T) {
	for _, at := range []step{afterRotation, afterAdvance} {
		tokens := s.connector.Connect(t, s.owner)
		s.dies(t, at, func() (harness.Answer, error) {
			return s.connector.TryPost(t, s.connector.RefreshForm(tokens.RefreshToken))
		})
		s.connector.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		s.connector.WantsRevoked(t, tokens)
		s.connector.WantsWorking(t, s.connector.Connect(t, s.owner))
	}
}

// diesAtAReplay is F7: a replay that only Redis knows of takes effect with the next presentation.
func (s stage) diesAtAReplay(t *testing.T) {
	tokens := s.connector.Connect(t, s.owner)
	refresh := func() (harness.Answer, error) {
		return s.connector.TryPost(t, s.connector.RefreshForm(tokens.RefreshToken))
	}
	s.dies(t, afterRotation, refresh)
	s.dies(t, afterReplay, refresh)
	s.connector.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	s.connector.WantsRevoked(t, tokens)
}

// diesRevoking is F8: a revocation that Postgres has committed takes effect immediately, whatever Redis knows.
func (s stage) diesRevoking(t *testing.T) {
	tokens := s.connector.Connect(t, s.owner)
	s.dies(t, afterRevocation, func() (harness.Answer, error) { return tryRevoke(t, s.connector, tokens.RefreshToken) })
	s.connector.WantsRevoked(t, tokens)
}

// dieAtWork kills the worker and resourceapi at each of their steps. All accepted work is processed exactly once in
// effect.
func (s stage) dieAtWork(t *testing.T, times int) {
	w := newWorkload(t, s.Product)
	for range times {
		for _, at := range []step{importTaken, importDone, importCommitted} {
			s.diesAtWork(t, at, s.running.Resourceapi, w.orders)
		}
		for _, at := range []step{submissionTaken, submissionDone, submissionCommitted} {
			s.diesAtWork(t, at, s.running.Worker, w.submits)
		}
	}
	w.wantsCommands(t)
}

// diesAtWork sends a request during or after which the service is killed at the step, and restarts the service.
func (s stage) diesAtWork(t *testing.T, at step, service *stack.Service, order func(*testing.T) bool) {
	t.Helper()
	file := s.mark(t, at)
	var client sync.WaitGroup
	client.Go(func() { order(t) })
	await.True(t, fmt.Sprintf("a process is killed %s", at), func() bool {
		_, err := os.Stat(file)
		return err != nil
	})
	must(t, service.Restart(t.Context()))
	client.Wait()
}
