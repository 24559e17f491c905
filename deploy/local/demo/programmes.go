package demo

import (
	"context"
	_ "embed" // for the data
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const (
	programmeCount = 230
	day            = 24 * time.Hour
)

//go:embed catalogue.json
var catalogueJSON []byte

// catalogue is what the programmes are made of.
var catalogue = readCatalogue()

type material struct {
	Places []string
	Themes []struct{ Names, Summaries []string } // kinds of programmes; * stands for a place
}

func readCatalogue() (read material) {
	if err := json.Unmarshal(catalogueJSON, &read); err != nil {
		panic(err) // the file is part of the program
	}
	return read
}

type programme struct {
	ID               uuid.UUID
	Name, Summary    string
	Status           string
	StartsOn, EndsOn *time.Time
	Created, Updated time.Time
}

func insertProgrammes(ctx context.Context, tx pgx.Tx, s Seed, d Demo, now time.Time) error {
	workspaceID, err := uuid.Parse(d.Workspaces.Main.ID)
	if err != nil {
		return err
	}
	programmes := imagine(s, now)
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"resource", "programmes"},
		[]string{"id", "tenant_id", "name", "summary", "status", "starts_on", "ends_on", "created_at", "updated_at"},
		pgx.CopyFromSlice(len(programmes), func(i int) ([]any, error) {
			p := programmes[i]
			return []any{
				p.ID, workspaceID, p.Name, p.Summary, p.Status, p.StartsOn, p.EndsOn, p.Created, p.Updated,
			}, nil
		}))
	return err
}

// imagine makes up a charity's programmes over the three years before the day of now (UTC), oldest first. They are the
// same in all installations except for IDs and dates, whatever the time of day.
func imagine(s Seed, now time.Time) []programme {
	now = now.Truncate(day)
	random := rand.New(rand.NewPCG(1834, 2026)) //nolint:gosec // demo data, not a secret
	places, themes := catalogue.Places, catalogue.Themes
	out := make([]programme, programmeCount)
	created := now.Add(-3 * 365 * day).Truncate(time.Second)
	step := 3 * 365 * day / programmeCount
	for i := range out {
		// Some were imported together and share a creation time, which pagination must handle.
		if i%23 > 4 || i%23 == 0 {
			created = now.Add(-3*365*day + time.Duration(i)*step + time.Duration(random.Int64N(int64(step)))).
				Truncate(time.Microsecond)
		}
		theme, place := themes[i%len(themes)], places[(i*17+i/len(places))%len(places)]
		p := programme{
			ID:      s.UUID(fmt.Sprint("programme ", i)),
			Name:    strings.ReplaceAll(theme.Names[i/len(themes)%len(theme.Names)], "*", place),
			Summary: strings.ReplaceAll(theme.Summaries[random.IntN(len(theme.Summaries))], "*", place),
			Created: created,
		}
		schedule(&p, random, now)
		out[i] = p
	}
	return out
}

// schedule gives a programme consistent dates and status.
func schedule(p *programme, random *rand.Rand, now time.Time) {
	age := now.Sub(p.Created)
	starts := p.Created.Add(time.Duration(7+random.IntN(90)) * day).Truncate(day)
	ends := starts.Add(time.Duration(60+random.IntN(500)) * day)
	p.StartsOn, p.EndsOn = &starts, &ends
	openEnded := random.IntN(5) == 0
	switch {
	case starts.After(now) || (age < 60*day && random.IntN(3) > 0):
		p.Status = "draft"
		if random.IntN(3) == 0 {
			p.StartsOn, p.EndsOn = nil, nil // not planned yet
		}
	case ends.After(now) || openEnded:
		p.Status = "active"
		if openEnded {
			p.EndsOn = nil
		}
	case age > 700*day && random.IntN(3) > 0:
		p.Status = "archived"
	default:
		p.Status = "completed"
	}
	p.Updated = p.Created.Add(time.Duration(random.Int64N(int64(age)))).Truncate(time.Microsecond)
}

// AllowedOrigin is the website that may embed the demo form. Nothing needs to listen there.
const AllowedOrigin = "http://127.0.0.1:8099"

// formJSON has the fields of the demo form, as resourceapi stores them.
//
//go:embed form.json
var formJSON []byte

func describeEngage(s Seed) (Engage, error) {
	embedKey, err := credential.EmbedKey.New(s.Reader("embed key"))
	return Engage{EmbedKey: embedKey.Reveal(), AllowedOrigin: AllowedOrigin}, err
}

func insertEngage(ctx context.Context, tx pgx.Tx, s Seed, d Demo) error {
	workspaceID, err := uuid.Parse(d.Workspaces.Main.ID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
		values ($1, $2, $3, 'Volunteer with us', $4, $5, $6)`,
		s.UUID("form"), workspaceID, d.Engage.EmbedKey, formJSON, []string{d.Engage.AllowedOrigin}, d.Users.Owner.ID)
	return err
}
