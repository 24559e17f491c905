package pg

import (
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

// pair returns both ends of a connection.
func pair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	if here, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

// pgconn may leave a reader behind, which must not block others.
func TestReadable_DoesNotWaitForAnotherReader(t *testing.T) {
	here, _ := pair(t)
	raw, err := here.(syscall.Conn).SyscallConn()
	must(t, err)
	reading := make(chan struct{})
	began := sync.OnceFunc(func() { close(reading) })
	go func() { // Read calls the function with the connection locked for readers, and then waits for data
		_ = raw.Read(func(uintptr) (done bool) { began(); return false })
	}()
	<-reading
	asked := make(chan bool, 1)
	go func() { asked <- readable(here) }()
	select {
	case is := <-asked:
		if is {
			t.Error("readable without data")
		}
	case <-time.After(5 * time.Second):
		t.Error("readable waited for the other reader")
	}
}

func TestReadable_DetectsClosedConnection(t *testing.T) {
	here, there := pair(t)
	if readable(here) {
		t.Error("readable without data")
	}
	_ = there.Close()
	await.True(t, "the closed connection is detected", func() bool { return readable(here) })
}

func connected(t *testing.T) *pgx.Conn {
	t.Helper()
	connection := testkit.Connect(t, testkit.NewDatabase(t).Authserver)
	registerUUIDs(connection.TypeMap())
	return connection
}

// Values, pointers, NULL and lists go to the database and back. The simple protocol, text and pgx's own type use the
// encoding of pgx.
func TestCodec_RoundTripsIdentifiers(t *testing.T) {
	db, want := connected(t), uuid.New()
	read := func(what, sql string, args, into []any) {
		t.Helper()
		if err := db.QueryRow(t.Context(), "select "+sql, args...).Scan(into...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	var value uuid.UUID
	var pointer, none *uuid.UUID
	var text string
	read("one", "$1::uuid, $2::uuid, $3::uuid, ($1::uuid)::text", []any{want, &want, (*uuid.UUID)(nil)},
		[]any{&value, &pointer, &none, &text})
	if value != want || pointer == nil || *pointer != want || none != nil || text != want.String() {
		t.Errorf("got %s, %v, %v and %s, want %s", value, pointer, none, text, want)
	}
	list := []uuid.UUID{want, uuid.New()}
	var values []uuid.UUID
	var pointers []*uuid.UUID
	read("lists", "$1::uuid[], $2::uuid[]", []any{list, []*uuid.UUID{&list[0], nil, &list[1]}},
		[]any{&values, &pointers})
	if !slices.Equal(values, list) || len(pointers) != 3 || *pointers[0] != list[0] || pointers[1] != nil ||
		*pointers[2] != list[1] {
		t.Errorf("got %s and %v, want %s", values, pointers, list)
	}
	for name, args := range map[string][]any{
		"simple protocol": {pgx.QueryExecModeSimpleProtocol, want},
		"text":            {want.String()},
		"pgx's own type":  {pgtype.UUID{Bytes: want, Valid: true}},
	} {
		var got uuid.UUID
		if read(name, "$1::uuid", args, []any{&got}); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	kept := value
	if err := db.QueryRow(t.Context(), `select null::uuid`).Scan(&value); !errors.Is(err, errNull) || value != kept {
		t.Errorf("NULL: got %s, %v", value, err)
	}
}

// The database/sql interfaces would allocate text for each identifier.
func TestCodec_DoesNotAllocate(t *testing.T) {
	types, id := pgtype.NewMap(), uuid.New()
	registerUUIDs(types)
	for name, value := range map[string]any{"value": id, "pointer": &id} {
		plan := types.PlanEncode(pgtype.UUIDOID, pgtype.BinaryFormatCode, value)
		out := make([]byte, 0, 16)
		if made := testing.AllocsPerRun(100, func() { _, _ = plan.Encode(value, out) }); made > 0 {
			t.Errorf("encode %s: %g allocations", name, made)
		}
	}
	plan, in := types.PlanScan(pgtype.UUIDOID, pgtype.BinaryFormatCode, &id), uuid.New()
	if made := testing.AllocsPerRun(100, func() { _ = plan.Scan(in[:], &id) }); made > 0 || id != in {
		t.Errorf("scan: %g allocations", made)
	}
}

func TestRegister_ListsUseCodec(t *testing.T) {
	types := pgtype.NewMap()
	registerUUIDs(types)
	list, _ := types.TypeForOID(pgtype.UUIDArrayOID)
	if _, ours := list.Codec.(*pgtype.ArrayCodec).ElementType.Codec.(codec); !ours {
		t.Error("lists do not use the codec")
	}
}

// pgx does not call the plans in these cases: it handles NULL itself, and PostgreSQL sends 16 bytes. Both
// fulfil the contract of a pgtype plan.
func TestPlans_HandleNullAndWrongLength(t *testing.T) {
	if out, err := (plan{}).Encode((*uuid.UUID)(nil), []byte("before")); out != nil || err != nil {
		t.Errorf("nil pointer: %q, %v, want NULL", out, err)
	}
	got := uuid.New()
	kept := got
	if err := (plan{}).Scan(make([]byte, 15), &got); err == nil || got != kept {
		t.Errorf("15 bytes: %s, %v", got, err)
	}
}
