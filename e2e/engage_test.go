package e2e

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// publicForm is the demo's form as a script on the allowed website uses it.
type publicForm struct {
	product *harness.Product
	path    string
}

func formOf(p *harness.Product) publicForm {
	return publicForm{p, "/v1/engage/public/forms/" + p.Demo.Engage.EmbedKey}
}

func (f publicForm) api() harness.API {
	return f.product.API().With("Origin", f.product.Demo.Engage.AllowedOrigin)
}

// submit sends answers with a new submission token.
func (f publicForm) submit(t *testing.T, answers map[string]any) harness.Answer {
	t.Helper()
	return submit(t, f.api(), f.path, answers)
}

// submit sends answers to the form at the path with a new submission token.
func submit(t *testing.T, api harness.API, path string, answers map[string]any) harness.Answer {
	t.Helper()
	token := api.Get(t, path).Wants(t, 200).Object(t)["submissionToken"]
	return api.JSON(t, "POST", path+"/submissions", map[string]any{"submissionToken": token, "answers": answers})
}

func volunteer() map[string]any {
	return map[string]any{"name": "Ada Okafor", "email": "ada@example.org", "help": "In the garden", "privacy": true}
}

// accepted submits answers, which must be accepted, and returns the path of the submission's status.
func (f publicForm) accepted(t *testing.T) string {
	t.Helper()
	body := f.submit(t, volunteer()).Wants(t, 202).Object(t)
	path, ours := strings.CutPrefix(body["statusUrl"].(string), f.product.BaseURL)
	if !ours || body["status"] != "accepted" || body["id"] == "" {
		t.Fatalf("%v", body)
	}
	return path
}

// ends waits for the final status of a submission.
func (f publicForm) ends(t *testing.T, path string) (status string) {
	t.Helper()
	await.True(t, "the submission is final", func() bool {
		status = f.api().Get(t, path).Wants(t, 200).Object(t)["status"].(string)
		return status != "accepted"
	})
	return status
}

func TestForms_SubmissionIsProcessed(t *testing.T) {
	t.Parallel()
	f := formOf(enter(t))
	if status := f.ends(t, f.accepted(t)); status != "processed" {
		t.Errorf("%s", status)
	}
	answers := volunteer()
	answers["email"] = "ada"
	f.submit(t, answers).Wants(t, 400)
	f.product.API().With("Origin", "https://elsewhere.example").Get(t, f.path).Wants(t, 403)
	f.product.API().Get(t, "/v1/engage/public/forms/alm_embed_unknown").Wants(t, 404)
	f.product.API().Get(t, f.path+"/embed").Wants(t, 200)
	f.product.API().Get(t, "/v1/engage/public/embed.js").Wants(t, 200)
}

// A job whose process died is retried after a minute, by the queue's leader.
func TestForms_CrashLosesNoSubmission(t *testing.T) {
	t.Parallel()
	s := harness.Private(t, harness.Options{})
	p := harness.NewProduct(t, s, &met)
	f := formOf(p)
	release := p.Database.Hold(t, `lock table resource.supporters in share mode`)
	var paths []string
	for range 3 { // more jobs would hold all connections of the process
		paths = append(paths, f.accepted(t))
	}
	await.True(t, "a job is taken", func() bool {
		return p.Database.Count(t, `select count(*) from river.river_job where state = 'running'`) > 0
	})
	s.Resourceapi.Kill()
	release()
	expireJobs(t, p)
	must(t, s.Resourceapi.Restart(t.Context()))
	for _, path := range paths {
		if status := f.ends(t, path); status != "processed" {
			t.Errorf("%s", status)
		}
	}
}

// expireJobs lets a minute pass after a worker was killed: its jobs are abandoned, and another process leads the queue.
func expireJobs(t *testing.T, p *harness.Product) {
	t.Helper()
	p.Database.Exec(t, `update river.river_leader set expires_at = elected_at + interval '1 microsecond'`)
	p.Database.Exec(t, `update river.river_job set attempted_at = now() - interval '2 minutes' where state = 'running'`)
}
