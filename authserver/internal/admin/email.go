package admin

import (
	"context"
	"fmt"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// SetEmail changes the address of a user who has lost the old mailbox, and mails both addresses.
func (d *Service) SetEmail(ctx context.Context, user, email string) (Result, error) {
	email, err := parseEmail(email)
	if err != nil {
		return nil, err
	}
	id, err := d.user(ctx, user)
	if err != nil {
		return nil, err
	}
	entry := event(audit.UserEmailChanged, "user", id)
	entry.UserID = &id
	if err := d.Store.SetEmail(ctx, id, email, entry); err != nil {
		return nil, err
	}
	return Outcome{
		fmt.Sprintf("The user signs in with %s now. The password and the sign-ins stay as they are.", email),
		map[string]any{"id": id, "email": email},
	}, nil
}
