package rehearsal

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// A slowStore has workspaces in which each change ends a webhook and no credential. Each part takes a second,
// after an eighth of it to find its credentials.
type slowStore struct{ credentials map[uuid.UUID]int } // of each workspace

func (s *slowStore) Concerned(_ context.Context, workspaceID uuid.UUID, _ Scope) ([]Credential, error) {
	n := s.credentials[workspaceID]
	time.Sleep(time.Duration(n/PartSize) * time.Second / 8)
	return make([]Credential, n), nil
}

func (s *slowStore) Rehearse(
	_ context.Context, workspaceID uuid.UUID, part Part, _ func(context.Context) error,
) (before, after State, err error) {
	time.Sleep(time.Second)
	before.Standings = make([]standing.Standing, len(part.Credentials))
	after = before
	if part.Others {
		before.Webhooks = []uuid.UUID{workspaceID}
	}
	return before, after, nil
}

func (s *slowStore) Uses(context.Context, uuid.UUID, []uuid.UUID, time.Time) ([]Use, error) {
	return nil, nil
}

// A result is how a rehearsal of a workspace ended, this long after the beginning of the test.
type result struct {
	workspace string
	after     time.Duration
	err       error
}

// R4: the parts of rehearsals take turns, so that large workspaces do not hold up a small one. A workspace has one
// rehearsal at once. One that waits or takes too long is refused.
func TestR4_PartsTakeTurns(t *testing.T) {
	const small, large, large2, huge = "small", "large", "large too", "huge"
	parts := map[string]int{small: 1, large: 4, large2: 4, huge: MaxCredentials / PartSize}
	many, others := slices.Repeat([]string{large}, inFlight+1), []string(nil)
	for i := range together {
		others = append(others, "large "+strconv.Itoa(i))
		parts[others[i]] = 4
	}
	for name, c := range map[string]struct {
		runs []string
		want []result // the first ones
	}{
		"a small one after large ones": {
			runs: []string{large, large2, large, small},
			want: []result{{small, 2500 * time.Millisecond, nil}},
		},
		"one that takes too long": {
			runs: []string{huge, huge},
			want: []result{{huge, wait, ErrBusy}, {huge, longest + time.Second, ErrTooSlow}},
		},
		"more than the bound": {
			runs: append(many, small),
			want: []result{
				{large, 0, ErrBusy},
				{small, 1125 * time.Millisecond, nil},
				{large, 4500 * time.Millisecond, nil},
			},
		},
		"more than the bound of all": {
			runs: append(others, small),
			want: []result{{small, wait, ErrBusy}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, ids := &slowStore{credentials: map[uuid.UUID]int{}}, map[string]uuid.UUID{}
				for workspace, n := range parts {
					ids[workspace] = uuid.New()
					store.credentials[ids[workspace]] = n * PartSize
				}
				r, began := New(Rehearsals{Store: store, Now: time.Now}), time.Now()
				results := make(chan result, len(c.runs))
				for _, workspace := range c.runs {
					go func() {
						said, err := r.Run(t.Context(), audit.Actor{WorkspaceID: ids[workspace]}, Change{})
						if (err == nil) != slices.Equal(said.Webhooks, []uuid.UUID{ids[workspace]}) {
							t.Errorf("%s: webhooks %v, %v", workspace, said.Webhooks, err)
						}
						results <- result{workspace, time.Since(began), err}
					}()
					synctest.Wait()
				}
				for i := range c.runs {
					if got := <-results; i < len(c.want) && got != c.want[i] {
						t.Errorf("%+v, want %+v", got, c.want[i])
					}
				}
			})
		})
	}
}
