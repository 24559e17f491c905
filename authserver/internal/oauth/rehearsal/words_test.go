package rehearsal

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"
)

func TestWords_SayTheBiggestFacts(t *testing.T) {
	ada, sam := uuid.New(), uuid.New()
	lost := func(fate Fate, app string, users ...uuid.UUID) (all []Affected) {
		for _, user := range users {
			name := map[uuid.UUID]string{ada: "Ada", sam: "Sam"}[user]
			all = append(all, Affected{Credential: Credential{UserID: user, Name: app, Person: name}, Fate: fate})
		}
		return all
	}
	token := Affected{Credential: Credential{UserID: ada, Hash: []byte{1}, Name: "import"}, Fate: Ends, Requests: 1}
	ended := slices.Concat(lost(Ends, "Rota", ada), lost(Ends, "Claude", ada, sam))
	for want, c := range map[string]struct {
		Outcome
		others []string
		reader uuid.UUID
	}{
		"No connected app or token is affected.": {},
		"1 token stops working; import would have been refused once in the last 30 days.": {
			Outcome: Outcome{Affected: []Affected{token}, Requests: 1},
		},
		"2 people lose Claude; Ada loses Rota.": {Outcome: Outcome{Affected: ended}},
		"2 people lose Claude; you lose Rota.":  {Outcome: Outcome{Affected: ended}, reader: ada},
		"You lose Rota.":                        {Outcome: Outcome{Affected: lost(Ends, "Rota", ada)}, reader: ada},
		"Ada loses Chat; Sam loses Rota.": {
			Outcome: Outcome{Affected: slices.Concat(lost(Ends, "Chat", ada), lost(Ends, "Rota", sam),
				lost(Pauses, "Claude", sam))},
			others: []string{"Sam cannot use Claude until AI assistants are switched on again"},
		},
		"Ada loses Chat; you lose Rota.": {
			Outcome: Outcome{Affected: slices.Concat(lost(Ends, "Chat", ada), lost(Ends, "Rota", sam),
				lost(Pauses, "Claude", sam))},
			others: []string{"You cannot use Claude until AI assistants are switched on again"},
			reader: sam,
		},
		"2 people lose Claude; Sam loses Chat; 3 requests of the last 30 days would have been refused.": {
			Outcome: Outcome{
				Affected:    slices.Concat([]Affected{token}, lost(Ends, "Chat", sam), ended),
				Requests:    3,
				Webhooks:    []uuid.UUID{ada},
				Invitations: []uuid.UUID{ada, sam},
			},
			others: []string{"1 other app loses access", "1 token stops working", "1 webhook endpoint stops",
				"2 open invitations are withdrawn"},
		},
		"Ada cannot use Claude and Rota until AI assistants are switched on again; 2 connected apps expire sooner.": {
			Outcome: Outcome{
				Affected: slices.Concat(lost(Pauses, "Claude", ada), lost(Pauses, "Rota", ada)),
				Sooner:   2,
			},
		},
		"Ada cannot use Claude; Sam cannot use Chat until AI assistants are switched on again.": {
			Outcome: Outcome{Affected: slices.Concat(lost(Pauses, "Claude", ada), lost(Pauses, "Chat", sam),
				lost(Pauses, "Rota", sam))},
			others: []string{"1 other app loses access until AI assistants are switched on again"},
		},
		"2 connected apps lose permissions.": {Outcome: Outcome{Affected: lost(Narrows, "Claude", ada, sam)}},
	} {
		if sentence, others := c.Words(c.reader, strconv.Itoa); sentence != want || !slices.Equal(others, c.others) {
			t.Errorf("%q %q, want %q %q", sentence, others, want, c.others)
		}
	}
}
