package standing

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A Profile describes the parties to a credential, for the user of the credential alone. The fields are the columns of
// account.profile, in order.
type Profile struct {
	User       string // display name
	Email      string
	Workspace  string // display name
	Credential string // the name of the client or of the personal access token
}

// ProfileFunction is the function that ProfileSQL calls, in the form of to_regprocedure. authserver's migrations create
// it.
const ProfileFunction = `account.profile(bytea, uuid, uuid)`

// ProfileSQL is the query, for callers that batch it with SQL. Its arguments are NamesArgs.
const ProfileSQL = `select * from account.profile($1, $2, $3)`

// ScanProfile reads the result of ProfileSQL and closes rows. It returns ErrUnknown if the credential does not exist.
func ScanProfile(rows pgx.Rows) (Profile, error) {
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Profile])
	if errors.Is(err, pgx.ErrNoRows) {
		return Profile{}, ErrUnknown
	}
	if err != nil {
		return Profile{}, fmt.Errorf("read a profile: %w", err)
	}
	return p, nil
}
