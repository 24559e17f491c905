package pghealth

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// denied is the SQLSTATE insufficient_privilege.
const denied = "42501"

// ExplainDenied adds advice to the error of a command whose database role lacks a right. role is the role of the
// program's commands.
func ExplainDenied(err error, role string) error {
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.Code == denied {
		return fmt.Errorf(
			"the role of ALMONER_DATABASE_URL may not do this. Use a role that is a member of %s, or for migrate the "+
				"owner of the database: %w", role, err)
	}
	return err
}
