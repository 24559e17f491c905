package torture

import (
	"flag"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/almonerhq/almoner/e2e/harness"
)

const (
	modelsShort = 12
	modelsLong  = 10_000
)

// TestModel_MatchesSystem changes users, memberships, grants, tokens, workspaces and time at random. After each step
// the product must respond as a one-page model does: status, permissions, and the rows of each workspace. Each model
// has its own workspaces, so many run concurrently.
func TestModel_MatchesSystem(t *testing.T) {
	models, steps := harness.Rounds(modelsShort, modelsLong), 50
	batch := min(models/workers, 25) // models that share a harness.Product
	if harness.Long() {
		steps = 100
	}
	harness.Record(t, "%d models, %d steps each on average", models, steps)
	for name, value := range map[string]string{
		"checks":     strconv.Itoa(batch),
		"steps":      strconv.Itoa(steps),
		"shrinktime": "20s",
		"nofailfile": "true",
	} {
		if err := flag.Set("rapid."+name, value); err != nil {
			t.Fatal(err)
		}
	}
	running := startedPair(t)
	spread(t, models/batch, func(*testing.T) func(*testing.T) {
		return func(t *testing.T) {
			t.Run("batch", func(t *testing.T) { // a subtest, which releases its resources
				p := harness.NewProduct(t, running, &seenSecrets)
				rapid.Check(t, func(rt *rapid.T) { newModel(t, rt, p).live(rt) })
			})
		}
	})
}

// live takes random steps. A failed run prints their names.
func (m *model) live(rt *rapid.T) {
	rt.Repeat(map[string]func(*rapid.T){
		"workspace":     m.opensWorkspace,
		"user":          m.hasUser,
		"join":          m.joins,
		"leave":         m.leaves,
		"permit":        m.permits,
		"LLM":           m.switchesLLM,
		"module":        m.switchesModule,
		"register":      m.registers,
		"delete client": m.deletesClient,
		"consent":       m.consents,
		"refresh":       m.refreshes,
		"refresh 2":     m.refreshes,
		"repeat":        m.repeats,
		"repeat 2":      m.repeats,
		"replay":        m.replays,
		"replay code":   m.replaysCode,
		"revoke":        m.revokes,
		"grant's time":  m.endsGrant,
		"PAT":           m.makesToken,
		"PAT ends":      m.endsToken,
		"list":          m.lists,
		"list 2":        m.lists,
		"list 3":        m.lists,
		"read":          m.reads,
		"write":         m.writes,
		"introspect":    m.introspects,
		"introspect 2":  m.introspects,
	})
}
