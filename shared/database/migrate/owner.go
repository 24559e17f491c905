package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// An Owner is a session of the owner of a database. It keeps the first error: no statement runs after it.
type Owner struct {
	*pgx.Conn
	ctx context.Context
	err error
}

// AsOwner runs work in a session with the settings of Config and then ends the session, which releases its locks. what
// is the prefix of its error, unless it is "".
func AsOwner(ctx context.Context, url, what string, work func(*Owner)) error {
	config, err := Config(url)
	if err == nil {
		var connection *pgx.Conn
		if connection, err = pgx.ConnectConfig(ctx, config); err == nil {
			defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
			o := &Owner{Conn: connection, ctx: ctx}
			work(o)
			err = Explain(o.err)
		}
	}
	if err != nil && what != "" {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// Err returns the first error.
func (o *Owner) Err() error { return o.err }

// Fail keeps an error, if it is the first one.
func (o *Owner) Fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// Do runs statements.
func (o *Owner) Do(statements ...string) {
	for _, statement := range statements {
		if o.err == nil {
			_, o.err = o.Exec(o.ctx, statement)
		}
	}
}

// Read reads the value that a query selects, and reports whether it has a row.
func (o *Owner) Read(into any, query string, args ...any) bool {
	if o.err != nil {
		return false
	}
	err := o.QueryRow(o.ctx, query, args...).Scan(into)
	if errors.Is(err, pgx.ErrNoRows) {
		return false
	}
	o.Fail(err)
	return err == nil
}

// atomically runs work in a transaction.
func (o *Owner) atomically(work func()) {
	if o.err != nil {
		return
	}
	o.Fail(pgx.BeginFunc(o.ctx, o.Conn, func(pgx.Tx) error {
		work()
		return o.err
	}))
}
