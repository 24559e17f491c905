package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// Accounts changes addresses and deletes accounts.
type Accounts interface {
	// SetEmail replaces the address of a user, and mails both addresses.
	SetEmail(ctx context.Context, user uuid.UUID, email string, event audit.Event) error
	DeletionSummary(ctx context.Context, user uuid.UUID) (useraccount.Summary, error)
	// DeleteUser ends the memberships, grants, tokens, sign-ins and sign-in methods of a user, and removes the name and
	// the address.
	DeleteUser(ctx context.Context, user uuid.UUID, event audit.Event) (useraccount.Ended, error)
}

// DeleteUser deletes a user. With dryRun it changes nothing and returns what would end.
func (d *Service) DeleteUser(ctx context.Context, user string, dryRun bool) (Result, error) {
	id, err := d.user(ctx, user)
	if err != nil {
		return nil, err
	}
	if dryRun {
		_, _, exists, err := d.Store.UserByID(ctx, id)
		if err == nil && !exists {
			err = ErrNoUser
		}
		if err != nil {
			return nil, err
		}
		summary, err := d.Store.DeletionSummary(ctx, id)
		return deletion("This would delete the user. Nothing was changed.", id, summary, false), err
	}
	entry := event(audit.UserDeleted, "user", id)
	entry.UserID = &id
	ended, err := d.Store.DeleteUser(ctx, id, entry)
	if err != nil {
		return nil, err
	}
	grants := make([]grant.Grant, len(ended.Grants))
	for i, g := range ended.Grants {
		grants[i] = grant.Grant{ID: g.ID, Ends: g.Ends, Reason: grant.MembershipOver}
	}
	d.PropagateRevocation(ctx, grants)
	return deletion("Deleted the user.", id, ended.Summary, true), nil
}

// deletion describes what ends with a user.
func deletion(sentence string, id uuid.UUID, s useraccount.Summary, deleted bool) Outcome {
	lines := []string{
		sentence,
		fmt.Sprintf("Ends: %s, %s, %s, %s, %s and %s.",
			plural(len(s.Workspaces), "membership", "memberships"),
			plural(s.Connections, "grant", "grants"),
			plural(s.Tokens, "personal access token", "personal access tokens"),
			plural(s.SignIns, "sign-in", "sign-ins"),
			plural(s.SignInMethods, "sign-in method", "sign-in methods"),
			plural(s.Invitations, "sent invitation", "sent invitations")),
		"Stays: " + plural(s.Applications, "application", "applications") + " that the user registered, and the " +
			"audit events with the id of the user. They show no name.",
	}
	for _, w := range s.Unmanaged() {
		lines = append(lines, fmt.Sprintf("A permission of account has no enabled holder left in %s (%s): run members "+
			"set-permissions or members add.", w.Name, w.ID))
	}
	return Outcome{strings.Join(lines, "\n"), map[string]any{"id": id, "deleted": deleted, "ends": s}}
}
