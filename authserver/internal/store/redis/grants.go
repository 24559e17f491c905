package redis

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
)

// The scripts on grants.
var (
	issueScript      = newUrgentScript("issue")
	withdrawScript   = newScript("withdraw")
	exchangeScript   = newUrgentScript("exchange")
	rotateScript     = newUrgentScript("rotate")
	undoScript       = newScript("undo")
	supersededScript = newUrgentScript("superseded")
	revokeScript     = newScript("revoke")
	repairScript     = newUrgentScript("repair")
)

// Grants implements grant.RotationStore.
type Grants struct{ scripts *scripts }

var _ grant.RotationStore = (*Grants)(nil)

// NewGrants returns the Grants stored in rdb.
func NewGrants(rdb goredis.UniversalClient) *Grants { return &Grants{newScripts(rdb)} }

// run runs a script on a grant's key. Every error wraps store.ErrUnavailable.
func (g *Grants) run(ctx context.Context, c script, id uuid.UUID, args ...any) (grant.ScriptResult, error) {
	result, reached, err := g.scripts.run(ctx, c, grantKey(id), args...)
	if err != nil && !reached {
		return "", fmt.Errorf("%w: %w: redis: %w", grant.ErrNotCommitted, store.ErrUnavailable, err)
	}
	if err != nil {
		return "", fmt.Errorf("%w: redis: %w", store.ErrUnavailable, err)
	}
	return grant.ScriptResult(result), nil
}

// grantKey returns the key of a grant. The braces select the hash slot.
func grantKey(id uuid.UUID) string { return "g:{" + id.String() + "}" }

// Issue makes the code of an approval redeemable, unless a later approval has replaced it.
func (g *Grants) Issue(
	ctx context.Context, id uuid.UUID, approval int, codeHash []byte, terms grant.CodeTerms, ends time.Time,
) (grant.ScriptResult, error) {
	return g.run(ctx, issueScript, id, codeHash, client.CodeLife.Milliseconds(), terms.ClientID.String(),
		terms.RedirectURI, terms.Resource, terms.Challenge, ends.UnixMilli(), approval)
}

// Withdraw undoes the Issue of an approval.
func (g *Grants) Withdraw(ctx context.Context, id uuid.UUID, approval int) (grant.ScriptResult, error) {
	return g.run(ctx, withdrawScript, id, approval)
}

// Decide redeems a code or replaces a refresh token, or repeats that.
func (g *Grants) Decide(
	ctx context.Context, step grant.Step, r grant.Request, next [][]byte,
) (grant.ScriptResult, error) {
	hashes, givenUp, direct := bytes.Join(next, nil), strings.Join(step.GivenUp, " "), flag(step.Direct())
	token, terms := r.Token, r.Terms
	if r.IsCode() { // terms.Challenge is derived from the presented verifier
		return g.run(ctx, exchangeScript, step.GrantID, step.Nonce, token.Hash, terms.ClientID.String(), terms.RedirectURI,
			terms.Resource, terms.Challenge, hashes, givenUp, direct)
	}
	return g.run(ctx, rotateScript, step.GrantID, step.Nonce, token.Generation, token.Hash, terms.ClientID.String(),
		terms.Resource, hashes, givenUp, direct)
}

// flag returns how the scripts read a flag.
func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// Responds reports whether the server of a grant responded to the last call.
func (g *Grants) Responds(ctx context.Context, id uuid.UUID) bool {
	return g.scripts.servers.of(ctx, g.scripts.rdb, grantKey(id)).health.answering()
}

// Undo restores the state before the decision with this nonce, if nothing has happened since.
func (g *Grants) Undo(ctx context.Context, id uuid.UUID, nonce string, how grant.Undo) (overtaken bool, err error) {
	result, err := g.run(ctx, undoScript, id, nonce, flag(how.Refused), how.Former)
	return how.Refused && result == grant.NotHeld, err
}

// Superseded returns why Postgres holds a later step than the presented credential.
func (g *Grants) Superseded(ctx context.Context, step grant.Step, known grant.Grant) (grant.ScriptResult, error) {
	return g.run(ctx, supersededScript, known.ID, step.Nonce, step.Hash, known.Generation,
		strings.Join(known.TakenBy, " "), strings.Join(step.GivenUp, " "))
}

// Revoke marks the grant as revoked, even if Redis does not know it.
func (g *Grants) Revoke(ctx context.Context, id uuid.UUID, reason grant.Reason, ends time.Time) error {
	_, err := g.run(ctx, revokeScript, id, string(reason), ends.UnixMilli())
	return err
}

// RevokeAll is Revoke for each of the grants with its reason, in one round trip. If the call for a
// grant fails, it calls Revoke for that grant, and it returns the first error of Revoke.
func (g *Grants) RevokeAll(ctx context.Context, ended []grant.Grant) error {
	calls, results := g.scripts.rdb.Pipeline(), make([]*goredis.Cmd, len(ended))
	for i, one := range ended {
		results[i] = revokeScript.EvalSha(ctx, calls, []string{grantKey(one.ID)},
			string(one.Reason), one.Ends.UnixMilli(), 0, one.ID.String()) // without a deadline, marked by its id
	}
	_, _ = calls.Exec(ctx) // each result has its error
	for i, one := range ended {
		if text, err := results[i].Text(); err == nil && strings.HasSuffix(text, " "+one.ID.String()) {
			continue
		}
		if err := g.Revoke(ctx, one.ID, one.Reason, one.Ends); err != nil {
			return err
		}
	}
	return nil
}

// Repair updates an active grant to the state in Postgres.
func (g *Grants) Repair(ctx context.Context, known grant.Grant) error {
	result, err := g.run(ctx, repairScript, known.ID, known.Generation, known.RefreshHash, known.ClientID.String(),
		known.Resource, known.Ends.UnixMilli())
	if err == nil && result == grant.Late {
		return fmt.Errorf("%w: %w: redis: repair came too late", grant.ErrNotCommitted, store.ErrUnavailable)
	}
	return err
}
