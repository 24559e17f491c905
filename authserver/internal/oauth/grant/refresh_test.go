package grant_test

import (
	"errors"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestG3_SupersededTokenRevokesGrantAndForgedDoesNot(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, first := b.active()
	refresh := first
	for range 3 {
		refresh = b.mustRotate(refresh)
	}
	forged, _ := newForeignCodec(t).New(grant.Refresh, g.Key(), 1)
	_, err := b.rotate(forged)
	b.refused("forged", err)
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	_, err = b.rotateAs(first, other.ID, resource)
	b.refused("another client's", err)
	b.wantActive(g.ID)
	_, err = b.rotateAs(first, b.app.ID, resource+"x")
	b.refused("superseded, with a wrong resource", err)
	b.wantRevoked(g.ID, grant.Replayed)
	_, err = b.rotate(refresh)
	b.refused("current token of a revoked grant", err)
}

func TestRotate_DetectsReplayBeforeStanding(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, first := b.active()
	b.mustRotate(first)
	b.fixture.SetLLM(false)
	_, err := b.rotate(first)
	b.refused("replay with LLM integration off", err)
	b.wantRevoked(g.ID, grant.Replayed)
}

func TestStandingRefusal_ConsumesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, refresh := b.active()
	off := map[string][2]string{
		"membership": {
			`delete from account.memberships where user_id = $1 and tenant_id = $2`,
			`insert into account.memberships (tenant_id, user_id, permissions)
			values ($2, $1, '{programmes:read:programmes}')`,
		},
		"permissions": {
			`update account.memberships set permissions = '{}' where user_id = $1 and tenant_id = $2`,
			`update account.memberships set permissions = '{programmes:read:programmes}'
			where user_id = $1 and tenant_id = $2`,
		},
		"LLM": {
			`update account.tenant_features set enabled = false where tenant_id = $2 and $1::uuid is not null`,
			`update account.tenant_features set enabled = true where tenant_id = $2 and $1::uuid is not null`,
		},
		"user enabled": {
			`update account.users set disabled_at = now() where id = $1 and $2::uuid is not null`,
			`update account.users set disabled_at = null where id = $1 and $2::uuid is not null`,
		},
	}
	for name, sql := range off {
		b.fixture.Exec(sql[0], b.user, b.fixture.WorkspaceID)
		_, err := b.rotate(refresh)
		b.refused(name, err)
		_, code := b.consent()
		_, err = b.redeem(code, b.terms())
		b.refused(name+" at exchange", err)
		b.fixture.Exec(sql[1], b.user, b.fixture.WorkspaceID)
		if _, err := b.redeem(code, b.terms()); err != nil {
			t.Errorf("%s: the code was consumed by a refusal: %v", name, err)
		}
		refresh = b.mustRotate(refresh)
	}
	_, err := b.rotateAs(refresh, b.app.ID, resource+"/")
	var refusal *grant.Refusal
	if !errors.As(err, &refusal) || refusal.Code != "invalid_target" {
		t.Errorf("wrong resource: %v", err)
	}
	b.mustRotate(refresh)
	b.wantActive(g.ID)
}

func TestG4_NothingSucceedsAtTheEnd(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, refresh := b.active()
	b.fixture.Exec(`update account.grants set ends_at = now() where id = $1`, g.ID)
	_, err := b.rotate(refresh)
	b.refused("after the end, by Postgres's clock", err)
	g, refresh = b.active()
	if err := b.rdb.HSet(t.Context(), "g:{"+g.ID.String()+"}", "en", time.Now().UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = b.rotate(refresh)
	b.refused("after the end, by Redis's clock", err)
}

func TestG5_ConfidentialGrantHasNoRefreshToken(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.app, _ = b.fixture.Confidential(perm.ProgrammesRead)
	g, refresh := b.active()
	if refresh != "" {
		t.Error("a refresh token was issued")
	}
	forged, _ := b.codec.New(grant.Refresh, g.Key(), 1)
	_, err := b.rotate(forged)
	b.refused("refresh of a confidential grant", err)
}

func TestG6_OnlyHashesAreStored(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.consent()
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	fields, err := b.rdb.HGetAll(t.Context(), "g:{"+g.ID.String()+"}").Result()
	if err != nil || len(fields) == 0 {
		t.Fatal(err)
	}
	for name, value := range fields {
		if value != "" && len(value) > 8 && (contains(code, value) || contains(issued.Refresh, value)) {
			t.Errorf("field %s holds a part of a token", name)
		}
	}
}

func TestG2_RaceHasOneWinnerAndRevokesGrant(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	sibling, others := b.active()
	for range 10 {
		g, refresh := b.active()
		race(t, 16, func() error { _, err := b.rotate(refresh); return err })
		b.wantRevoked(g.ID, grant.Replayed)
		g, code := b.consent()
		race(t, 16, func() error { _, err := b.redeem(code, b.terms()); return err })
		b.wantRevoked(g.ID, grant.CodeReused)
		others = b.mustRotate(others) // another connection of the same client and user
	}
	b.wantActive(sibling.ID)
}
