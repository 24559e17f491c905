package demo

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/seed"
	"github.com/almonerhq/almoner/shared/credential"
)

// AllowedOrigin is the website that may embed the demo form. Nothing needs to listen there.
const AllowedOrigin = "http://127.0.0.1:8099"

// A question is a form field as resourceapi stores it.
type question struct {
	Name     string   `json:"name"`
	Label    string   `json:"label"`
	Type     string   `json:"type"`
	Required bool     `json:"required"`
	Options  []string `json:"options,omitempty"`
}

var questions = []question{
	{Name: "name", Label: "Your name", Type: "text", Required: true},
	{Name: "email", Label: "E-mail address", Type: "email", Required: true},
	{Name: "phone", Label: "Telephone", Type: "phone"},
	{
		Name:     "help",
		Label:    "How would you like to help?",
		Type:     "select",
		Required: true,
		Options:  []string{"In the kitchen", "Driving the minibus", "Visiting someone", "In the garden"},
	},
	{
		Name:    "days",
		Label:   "Which days suit you?",
		Type:    "multiselect",
		Options: []string{"Weekdays", "Evenings", "Saturdays", "Sundays"},
	},
	{Name: "hours", Label: "Hours a week", Type: "number"},
	{Name: "from", Label: "When could you start?", Type: "date"},
	{Name: "about", Label: "Anything that we should know?", Type: "textarea"},
	{
		Name:     "privacy",
		Label:    "I agree that Tideway Community Trust keeps my answers for a year, to find me something to do.",
		Type:     "consent",
		Required: true,
	},
}

func describeEngage(s seed.Seed) (Engage, error) {
	embedKey, err := credential.EmbedKey.New(s.Reader("embed key"))
	return Engage{EmbedKey: embedKey.Reveal(), AllowedOrigin: AllowedOrigin}, err
}

func insertEngage(ctx context.Context, tx pgx.Tx, s seed.Seed, d Demo) error {
	workspaceID, err := uuid.Parse(d.Workspaces.Main.ID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
		values ($1, $2, $3, 'Volunteer with us', $4, $5, $6)`,
		s.UUID("form"), workspaceID, d.Engage.EmbedKey, questions, []string{d.Engage.AllowedOrigin}, d.Users.Owner.ID)
	return err
}
