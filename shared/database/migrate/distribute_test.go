package migrate

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestApply_NeedsCitus(t *testing.T) {
	t.Parallel()
	url, _ := freshDatabase(t)
	var said strings.Builder
	err := Distribute(t.Context(), url, []byte(`{"Reference": ["account.tenants"]}`), &said)
	if !errors.Is(err, ErrNoCitus) || said.String() != "" {
		t.Errorf("%v, %q", err, said.String())
	}
}

// A table that Citus does not convert keeps its privileges on columns: the service cannot choose the time of an audit
// event, not even after an earlier release distributed the tables.
func TestApply_KeepsPrivilegesOnColumnsOfOtherTables(t *testing.T) {
	t.Parallel()
	_, owner := freshDatabase(t)
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := owner.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	exec(
		"create schema if not exists account",
		"create table account.moving (id int, at timestamptz)",
		"create table account.staying (id int, at timestamptz)",
		"grant insert (id), update (at) on account.moving, account.staying to almoner_authserver",
		"grant insert on account.staying to almoner_authserver", // by an earlier release
	)
	w := &distributing{
		Distribution: Distribution{Reference: []string{"account.moving"}},
		Owner:        &Owner{Conn: owner, ctx: t.Context()},
		out:          io.Discard,
	}
	w.readColumnGrants()
	w.grantColumns()
	if w.err != nil {
		t.Fatal(w.err)
	}
	for privilege, want := range map[string]bool{
		"account.moving, at, insert":  true,
		"account.moving, at, update":  true,
		"account.moving, id, update":  false,
		"account.staying, id, insert": true,
		"account.staying, at, insert": false,
		"account.staying, at, update": true,
	} {
		parts := strings.Split(privilege, ", ")
		var has bool
		err := owner.QueryRow(t.Context(),
			"select has_column_privilege('almoner_authserver', $1::text, $2::text, $3::text)",
			parts[0], parts[1], parts[2]).Scan(&has)
		if err != nil || has != want {
			t.Errorf("%s: %v, want %v: %v", privilege, has, want, err)
		}
	}
}
