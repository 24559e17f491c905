package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

// The state of the test process: the stacks that end with it, and the secrets that were met at each stack.
var (
	lasting sync.Map // *stack.Stack → nothing
	metAt   sync.Map // *stack.Stack → *sync.Map of *Secrets
)

func noteMeeting(s *stack.Stack, secrets *Secrets) {
	all, _ := metAt.LoadOrStore(s, &sync.Map{})
	all.(*sync.Map).Store(secrets, nil)
}

// LookForLeaks sweeps every stack that ends with the process. It prints what it finds, and returns the code to exit with. TestMain
// calls it in the end.
func LookForLeaks() (code int) {
	for s := range lasting.Range {
		for _, complaint := range sweep(s.(*stack.Stack), true) {
			fmt.Println("FAIL:", complaint)
			code = 1
		}
	}
	return code
}

// sweepAtTheEnd sweeps a stack that one test has to itself, and may have left without its stores.
func sweepAtTheEnd(t testing.TB, s *stack.Stack) {
	for _, complaint := range sweep(s, false) {
		t.Error(complaint)
	}
	metAt.Delete(s)
}

// sweep looks for every secret that was met at a stack in everything that the stack has written: the logs of services, gateway and
// stores, metrics, traces, all rows of Postgres, and all that Redis was ever told (its append-only file, expired keys included). A whole stack has each of
// these.
func sweep(s *stack.Stack, whole bool) (complaints []string) {
	all, entered := metAt.Load(s)
	if !entered {
		return nil
	}
	texts, err := written(s)
	if err != nil && whole {
		complaints = append(complaints, "what a stack has written cannot be read: "+err.Error())
	}
	for secrets := range all.(*sync.Map).Range {
		for _, where := range slices.Sorted(maps.Keys(texts)) {
			if found := secrets.(*Secrets).FoundIn(texts[where]); len(found) > 0 {
				complaints = append(complaints, fmt.Sprintf("secrets of this run are in %s: %v", where, found))
			}
		}
	}
	return complaints
}

// written reads everything, by the place where it is. The error names the places that have gone.
func written(s *stack.Stack) (map[string][]byte, error) {
	texts, faults := map[string][]byte{}, []error{}
	for where, pattern := range map[string]string{
		"the services' logs": filepath.Join(s.LogDir(), "*.log"),
		"the stores' logs":   filepath.Join(s.StoreDir(), "*", "*.log"),
		"Redis":              filepath.Join(s.StoreDir(), "redis", "appendonlydir", "*"),
	} {
		content, err := readFiles(pattern)
		if texts[where] = content; err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", where, err))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if traces, err := os.ReadFile(filepath.Join(filepath.Dir(s.LogDir()), spansFile)); err == nil { // of a stack that is Traced
		texts["the traces"] = traces
	}
	metrics, err := scrape(ctx, s)
	if texts["the metrics"] = []byte(metrics); err != nil {
		faults = append(faults, err)
	}
	owner, err := pgx.Connect(ctx, s.DatabaseURL)
	if err != nil {
		return texts, errors.Join(append(faults, fmt.Errorf("connect to Postgres: %w", err))...)
	}
	defer func() { _ = owner.Close(ctx) }()
	if texts["Postgres"], err = dump(ctx, owner); err != nil {
		faults = append(faults, fmt.Errorf("dump Postgres: %w", err))
	}
	return texts, errors.Join(faults...)
}

func readFiles(pattern string) ([]byte, error) {
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		return nil, errors.Join(err, errors.New("there is nothing"))
	}
	var all []byte
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(append(all, content...), '\n')
	}
	return all, nil
}

// dump returns every row of every table as text, with bytes as they are.
func dump(ctx context.Context, owner *pgx.Conn) ([]byte, error) {
	if _, err := owner.Exec(ctx, `set bytea_output = 'escape'`); err != nil {
		return nil, err
	}
	rows, err := owner.Query(ctx, `select format('%I.%I', table_schema, table_name) from information_schema.tables
		where table_schema not in ('pg_catalog', 'information_schema') and table_type = 'BASE TABLE'`)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, table := range tables {
		rows, err := owner.Query(ctx, `select r::text from `+table+` r`)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		for _, line := range lines {
			all.WriteString(line + "\n")
		}
	}
	return []byte(all.String()), nil
}
