package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/seed"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

const (
	tokenLife = 90 * 24 * time.Hour // the longest of the three lifetimes (spec 2.1)
	// tokenSpare excludes a token that expires within the hour from the tokens that are printed.
	tokenSpare = time.Hour
)

// A token is a personal access token that the demo must have.
type token struct {
	label     string // label in the seed; successors are numbered
	user      User
	workspace Workspace
	may       perm.Set
	value     *string // where the token is stored
}

func (d *Demo) tokens() []token {
	t, users, out := d.Workspaces, d.Users, &d.Tokens
	all := everyPermission()
	return []token{
		{"owner", users.Owner, t.Main, all, &out.Owner},
		{"reader", users.Reader, t.Main, readerPermissions(), &out.Reader},
		{"registrar", users.Registrar, t.Main, registrarPermissions(), &out.Registrar},
		{"owner in main", users.Owner, t.Main, all, &out.OwnerIn.Main},
		{"owner in empty", users.Owner, t.Empty, all, &out.OwnerIn.Empty},
		{"owner in programmesDisabled", users.Owner, t.ProgrammesDisabled, all, &out.OwnerIn.ProgrammesDisabled},
		{"owner in unprovisioned", users.Owner, t.Unprovisioned, all, &out.OwnerIn.Unprovisioned},
		{"owner in llmDisabled", users.Owner, t.LLMDisabled, all, &out.OwnerIn.LLMDisabled},
	}
}

func ensureTokens(ctx context.Context, db *pgx.Conn, s seed.Seed, d *Demo, now time.Time) error {
	for _, wanted := range d.tokens() {
		value, err := ensureToken(ctx, db, s, wanted, now)
		if err != nil {
			return fmt.Errorf("demo data, the personal access token of %s: %w", wanted.label, err)
		}
		*wanted.value = value
	}
	return nil
}

// ensureToken returns the first valid token among a token and its successors, or creates the next one.
func ensureToken(ctx context.Context, db *pgx.Conn, s seed.Seed, wanted token, now time.Time) (string, error) {
	for number := 1; ; number++ {
		id := fmt.Sprintf("token %s %d", wanted.label, number)
		secret, err := credential.PersonalAccessToken.New(s.Reader(id))
		if err != nil {
			return "", err
		}
		var good bool
		err = db.QueryRow(ctx, "select revoked_at is null and expires_at > $2 from account.personal_access_tokens "+
			"where hash = $1",
			credential.Hash(secret.Reveal()), now.Add(tokenSpare)).
			Scan(&good)
		if errors.Is(err, pgx.ErrNoRows) {
			_, err = db.Exec(
				ctx,
				`insert into account.personal_access_tokens
				(id, hash, user_id, tenant_id, name, permissions, created_at, expires_at)
				values ($1, $2, $3, $4, $5, $6, $7, $8)`,
				s.UUID(id),
				credential.Hash(secret.Reveal()),
				wanted.user.ID,
				wanted.workspace.ID,
				"Demo: "+wanted.label,
				wanted.may.Strings(),
				now,
				now.Add(tokenLife),
			)
			return secret.Reveal(), err
		}
		if err != nil {
			return "", err
		}
		if good {
			return secret.Reveal(), nil
		}
	}
}
