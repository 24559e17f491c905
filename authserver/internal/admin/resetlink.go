package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
)

// ResetLink makes a link with which a user sets a new password, as the mail of /login/forgotten has it. The operator
// gives it to the user. With this link, the user can also remove passkeys that a workspace requires.
func (d *Service) ResetLink(ctx context.Context, user string) (Result, error) {
	if d.AppURL == "" {
		return nil, refuse("set ALMONER_APP_URL: the link leads to the pages of the deployment")
	}
	id, err := d.user(ctx, user)
	if err != nil {
		return nil, err
	}
	token, err := password.NewToken(rand.Reader)
	if err != nil {
		return nil, err
	}
	expires := time.Now().Add(mail.ResetLife)
	entry := event(audit.UserResetRequested, "user", id)
	entry.UserID = &id
	if err := d.Store.AddReset(ctx, id, password.HashToken(token), expires, entry); err != nil {
		return nil, err
	}
	link := d.AppURL + mail.ResetPath + "?token=" + url.QueryEscape(token.Reveal())
	return Outcome{
		fmt.Sprintf("This link works once, until %s. Give it to the user only:\n%s", stamp(&expires), link),
		map[string]any{"id": id, "url": link, "expiresAt": stamp(&expires)},
	}, nil
}
