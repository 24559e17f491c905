package members

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/listing"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/writes"
	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/jsontime"
	"github.com/almonerhq/almoner/shared/web"
)

// readBody reads a JSON object by the rules of JSON v2: member names match their case, and duplicates are refused.
// Unknown names are ignored.
func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, writes.MaxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return apierr.New(apierr.Invalid, "The body could not be read.")
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case len(raw) == 0:
		return apierr.New(apierr.Invalid, "The body is empty.")
	case err != nil || mediaType != "application/json":
		return apierr.New(apierr.Invalid, "Content-Type must be application/json.")
	case web.Encoded(r.Header):
		return apierr.New(apierr.Invalid, web.EncodedWords)
	}
	isObject := bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) // null would leave into unchanged
	if err := json.Unmarshal(raw, into); err != nil || !isObject {
		return apierr.New(
			apierr.Invalid,
			"The body must be one JSON object with the documented types and without duplicate keys.",
		)
	}
	return nil
}

// A memberBody is the JSON of a member.
type memberBody struct {
	UserID      string         `json:"userId"`
	Name        string         `json:"name"`
	Email       string         `json:"email"`
	Permissions []string       `json:"permissions"`
	Disabled    bool           `json:"disabled"`
	Connections int            `json:"connections"`
	Tokens      int            `json:"tokens"`
	CreatedAt   jsontime.Time  `json:"createdAt"`
	LastSeenAt  *jsontime.Time `json:"lastSeenAt"`
}

func showMember(m membership.Member) memberBody {
	return memberBody{
		UserID:      m.UserID.String(),
		Name:        m.Name,
		Email:       m.Email,
		Permissions: m.Permissions.Strings(),
		Disabled:    m.Disabled,
		Connections: m.Connections,
		Tokens:      m.Tokens,
		CreatedAt:   jsontime.Time(m.Since),
		LastSeenAt:  moment(m.LastSeen),
	}
}

func moment(t *time.Time) *jsontime.Time {
	if t == nil {
		return nil
	}
	at := jsontime.Time(*t)
	return &at
}

// An invitationBody is the JSON of an invitation. It has the link only in the response to the call that created it.
type invitationBody struct {
	ID          string        `json:"id"`
	Email       string        `json:"email"`
	Permissions []string      `json:"permissions"`
	InvitedBy   string        `json:"invitedBy"`
	CreatedAt   jsontime.Time `json:"createdAt"`
	ExpiresAt   jsontime.Time `json:"expiresAt"`
	URL         string        `json:"url,omitempty"`
}

func showInvitation(i membership.Invitation) invitationBody {
	return invitationBody{
		ID:          i.ID.String(),
		Email:       i.Email,
		Permissions: i.Permissions.Strings(),
		InvitedBy:   i.InviterID.String(),
		CreatedAt:   jsontime.Time(i.Created),
		ExpiresAt:   jsontime.Time(i.Expires),
	}
}

// byName returns the list of a workspace's members; read reads those of a page.
func byName(read func([]uuid.UUID) ([]membership.Member, error)) listing.List[membership.ListedMember, memberBody] {
	return listing.List[membership.ListedMember, memberBody]{
		Name: "members",
		Key: func(m membership.ListedMember) string {
			return strings.ToLower(m.Name) + "\x00" + m.Email + "\x00" + m.UserID.String()
		},
		Show: func(page []membership.ListedMember) ([]memberBody, error) {
			members, err := read(membership.UserIDs(page))
			if err != nil {
				return nil, err
			}
			return listing.Each(showMember)(members)
		},
	}
}

// newestFirst returns the list of a workspace's open invitations.
func newestFirst() listing.List[membership.Invitation, invitationBody] {
	return listing.List[membership.Invitation, invitationBody]{
		Name:    "invitations",
		Omitted: []string{"url"},
		Key:     func(i membership.Invitation) string { return listing.NewestFirst(i.Created, i.ID) },
		Show:    listing.Each(showInvitation),
	}
}
