package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/client"
	"github.com/almonerhq/almoner/authserver/internal/grant"
)

var (
	//go:embed lua/issue.lua
	issueSource string
	//go:embed lua/exchange.lua
	exchangeSource string
	//go:embed lua/rotate.lua
	rotateSource string
	//go:embed lua/undo.lua
	undoSource string
	//go:embed lua/revoke.lua
	revokeSource string
	//go:embed lua/repair.lua
	repairSource string
)

// Grants is the grant.Register.
type Grants struct {
	rdb                                           goredis.UniversalClient
	issue, exchange, rotate, undo, revoke, repair *goredis.Script
}

var _ grant.Register = (*Grants)(nil)

// NewGrants keeps grants in rdb.
func NewGrants(rdb goredis.UniversalClient) *Grants {
	return &Grants{
		rdb: rdb, issue: newScript(issueSource), exchange: newScript(exchangeSource),
		rotate: newScript(rotateSource), undo: newScript(undoSource),
		revoke: newScript(revokeSource), repair: newScript(repairSource),
	}
}

// run asks one of the scripts. Every failure is grant.ErrUnavailable: whatever is wrong with Redis, it is not the caller.
func (g *Grants) run(ctx context.Context, script *goredis.Script, id uuid.UUID, args ...any) (grant.Word, error) {
	word, reached, err := ask(ctx, g.rdb, script, grantKey(id), args...)
	if err != nil && !reached {
		return "", fmt.Errorf("%w: %w: redis: %w", grant.ErrNotCommitted, grant.ErrUnavailable, err)
	}
	if err != nil {
		return "", fmt.Errorf("%w: redis: %w", grant.ErrUnavailable, err)
	}
	return grant.Word(word), nil
}

// neverSent says whether it is certain that Redis did not get the command, or refused to run it.
func neverSent(err error) bool {
	var network *net.OpError
	var refused goredis.Error
	return errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted) || errors.As(err, &refused) ||
		(errors.As(err, &network) && network.Op == "dial")
}

// Issue makes the code of an approval redeemable. One that a later approval has overtaken changes nothing.
func (g *Grants) Issue(ctx context.Context, id uuid.UUID, approval int, codeHash []byte, terms grant.CodeTerms, ends time.Time) (grant.Word, error) {
	return g.run(ctx, g.issue, id, codeHash, client.CodeLife.Milliseconds(), terms.ClientID.String(), terms.RedirectURI,
		terms.Resource, terms.Challenge, ends.UnixMilli(), approval)
}

// Exchange redeems a code. terms.Challenge is that of the verifier presented.
func (g *Grants) Exchange(ctx context.Context, id uuid.UUID, nonce string, codeHash []byte, terms grant.CodeTerms, refreshHash []byte) (grant.Word, error) {
	return g.run(ctx, g.exchange, id, nonce, codeHash, terms.ClientID.String(), terms.RedirectURI, terms.Resource,
		terms.Challenge, refreshHash)
}

// Rotate replaces the current refresh token.
func (g *Grants) Rotate(ctx context.Context, nonce string, old grant.Token, clientID uuid.UUID, resource string, next []byte) (grant.Word, error) {
	return g.run(ctx, g.rotate, old.GrantID, nonce, old.Generation, old.Hash, clientID.String(), resource, next)
}

// Undo takes back what the call with this nonce decided, if nothing has happened since; one that is still to arrive is refused then.
func (g *Grants) Undo(ctx context.Context, id uuid.UUID, nonce string) error {
	_, err := g.run(ctx, g.undo, id, nonce)
	return err
}

// Revoke leaves a tombstone.
func (g *Grants) Revoke(ctx context.Context, id uuid.UUID, reason grant.Reason, ends time.Time) error {
	_, err := g.run(ctx, g.revoke, id, string(reason), ends.UnixMilli())
	return err
}

// Repair brings an active grant up to what the Ledger knows.
func (g *Grants) Repair(ctx context.Context, known grant.Grant) error {
	_, err := g.run(ctx, g.repair, known.ID, known.Generation, known.RefreshHash, known.ClientID.String(), known.Resource, known.Ends.UnixMilli())
	return err
}
