package rest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A client that does not know whether a write arrived repeats it with the same Idempotency-Key. It gets the first
// answer, and the write takes effect once (contract, section 6). Keys are valid for 24 hours, per workspace, user and
// route; only 2xx answers are stored. The record is written in the transaction of the effect, so that neither exists
// without the other.

// KeyHeader is the header of the key. ReplayedHeader marks a repeated response (contract, section 6a).
const (
	KeyHeader      = "Idempotency-Key"
	ReplayedHeader = "Idempotency-Replayed"
)

// KeyRetention is how long an answer is stored.
const KeyRetention = 24 * time.Hour

const maxKey = 255

// A KeyScope is the scope of a key: the same text in another scope is another key.
type KeyScope struct {
	WorkspaceID uuid.UUID
	User        uuid.UUID
	Route       string // RouteOf the request
}

// maxRoute is the maximum length of a stored path, in bytes. An index of PostgreSQL takes no more than 2,700 bytes for
// the whole scope.
const maxRoute = 500

// RouteOf returns the method and the path of a request, including ids. Of a path that is too long for an index, it
// returns a hash.
func RouteOf(r *http.Request) string {
	path := r.URL.EscapedPath()
	if len(path) > maxRoute {
		hash := sha256.Sum256([]byte(path))
		path = "sha256:" + hex.EncodeToString(hash[:])
	}
	return r.Method + " " + path
}

// A Key identifies one write of one caller. If Text is empty, there is no key and no answer is stored; the scope is
// still set.
type Key struct {
	KeyScope
	Text string
	Body [sha256.Size]byte // hash of the request's body
	By   Caller            // the zero Caller if no credential is needed
}

// A Caller is the credential of a request and what it may do at this moment.
type Caller struct {
	Credential uuid.UUID // of a personal access token or a grant
	Held       perm.Set
}

// Given reports whether the request has a key.
func (k Key) Given() bool { return k.Text != "" }

// An Answer is the response to a write.
type Answer struct {
	Status   int
	ETag     string // empty if none
	Location string // empty if none
	Body     []byte // JSON
	Replayed bool   // an earlier request with the same key got this answer
	// Needs are the permissions that the write needed besides those that its route checks. The answer is not repeated
	// to a caller without them.
	Needs  perm.Set
	Secret bool // the body has a secret: the answer is repeated to the same credential alone
}

// Serve writes the answer.
func (a Answer) Serve(w http.ResponseWriter) {
	for name, value := range map[string]string{"ETag": a.ETag, "Location": a.Location} {
		if value != "" {
			w.Header().Set(name, value)
		}
	}
	if a.Replayed {
		w.Header().Set(ReplayedHeader, "true")
	}
	if len(a.Body) > 0 {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // a client that disconnected is not an error
}

// ErrReused is returned for a key that was used with another body. It is a Conflict.
var ErrReused = apierr.New(apierr.Conflict,
	"This Idempotency-Key was already used with a different body within 24 hours. Use a new key for a new request.")

// ErrOtherCredential is returned for a key whose answer has a secret that another credential got. It is a Conflict.
var ErrOtherCredential = apierr.New(apierr.Conflict,
	"Another credential used this Idempotency-Key, and the answer contains a secret. Use a new key for a new request.")

// mayRepeat returns an error if the stored answer must not be given to the caller. credential is that of the first
// request if the answer has a secret, or nil.
func (c Caller) mayRepeat(needs perm.Set, credential *uuid.UUID) error {
	if missing := needs.Without(c.Held); len(missing) > 0 {
		return apierr.New(apierr.Forbidden,
			"The request with this Idempotency-Key needed permissions that you or your credential do not have now. "+
				"Missing: "+missing.Scope()+".")
	}
	if credential != nil && *credential != c.Credential {
		return ErrOtherCredential
	}
	return nil
}

// ReadKey reads the header, which may appear once with 1 to 255 visible ASCII characters. Without it, the key has
// only a scope. The error is an *apierr.Error.
func ReadKey(h http.Header, scope KeyScope, body []byte) (Key, error) {
	values := h.Values(KeyHeader)
	if len(values) == 0 {
		return Key{KeyScope: scope}, nil
	}
	if len(values) > 1 || !visible(values[0]) {
		return Key{}, apierr.New(apierr.Invalid,
			"Send Idempotency-Key only once, with 1 to 255 visible ASCII characters.")
	}
	return Key{KeyScope: scope, Text: values[0], Body: sha256.Sum256(body)}, nil
}

func visible(text string) bool {
	other := func(r rune) bool { return r < 0x21 || r > 0x7e }
	return text != "" && len(text) <= maxKey && !strings.ContainsFunc(text, other)
}

// JSON returns the answer with value as JSON, or err.
func JSON(status int, value any, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	body, err := web.EncodeJSON(value)
	return Answer{Status: status, Body: body}, err
}

// JSONLine is JSON with a line break at the end, as package web writes it.
func JSONLine(status int, value any) (Answer, error) {
	answer, err := JSON(status, value, nil)
	answer.Body = append(answer.Body, '\n')
	return answer, err
}

// An Effect is a write with the writer W of one transaction. It returns its answer.
type Effect[W any] = func(context.Context, W) (Answer, error)

// An AnswerStore runs a write and stores its answer.
type AnswerStore interface {
	// Once runs effect in one transaction and stores the answer under key, or returns the answer that is stored under
	// it. The changes that effect makes with its context belong to the transaction. effect may be called again if
	// Postgres aborted the transaction.
	Once(ctx context.Context, key Key, effect func(context.Context) (Answer, error)) (Answer, error)
}

// A Write is a write of the account endpoints. It returns its answer.
type Write func(w http.ResponseWriter, r *http.Request) (Answer, error)

// Serve runs the write for the caller by in the workspace and writes its answer, or writes the answer that is stored
// under the request's Idempotency-Key. The key is looked up before the request is parsed. Serve returns an error of the
// write or of the store, or an *apierr.Error. After an error, it has written nothing.
func (write Write) Serve(w http.ResponseWriter, r *http.Request, store AnswerStore, scope KeyScope, by Caller) error {
	answer, err := write.once(w, r, store, scope, by)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	answer.Serve(w)
	return nil
}

func (write Write) once(
	w http.ResponseWriter, r *http.Request, store AnswerStore, scope KeyScope, by Caller,
) (Answer, error) {
	if len(r.Header.Values(KeyHeader)) == 0 {
		return write(w, r)
	}
	content, err := readAccountBody(w, r)
	if err != nil {
		return Answer{}, err
	}
	scope.Route = RouteOf(r)
	key, err := ReadKey(r.Header, scope, content)
	if err != nil {
		return Answer{}, err
	}
	key.By = by
	return store.Once(r.Context(), key, func(ctx context.Context) (Answer, error) {
		again := r.WithContext(ctx)
		again.Body = io.NopCloser(bytes.NewReader(content))
		return write(w, again)
	})
}

// An AnswerTable stores answers in Postgres. It has the columns tenant_id, user_id, route and key, which are its
// primary key, body_hash, status, etag, location, body, needs, credential_id and created_at. The previous release
// stored neither needs nor credential_id: its answers are repeated without these checks.
type AnswerTable struct {
	Name string    // with its schema
	Box  *seal.Box // seals the bodies, or nil
}

// Once runs effect in tx and stores its answer under key, if one was given. For a known key it returns the first answer
// without running effect, ErrReused if the body differs, or another *apierr.Error if the caller must not get it. A
// concurrent request with the same key waits for the first one. An error of effect is returned unchanged; the caller
// must then roll tx back, so that nothing is stored.
func (a AnswerTable) Once(ctx context.Context, tx pgx.Tx, key Key, effect Effect[pgx.Tx]) (Answer, error) {
	if !key.Given() {
		return effect(ctx, tx)
	}
	first, known, err := a.claim(ctx, tx, key)
	if err != nil || known {
		return first, err
	}
	answer, err := effect(ctx, tx)
	if err != nil {
		return Answer{}, err
	}
	return answer, a.store(ctx, tx, key, answer)
}

// claim inserts the key's row, or returns the stored answer. The insert waits for a transaction that inserts the same
// row; a row older than KeyRetention is replaced.
func (a AnswerTable) claim(ctx context.Context, tx pgx.Tx, key Key) (first Answer, known bool, err error) {
	for {
		claimed, err := a.insert(ctx, tx, key)
		if err != nil || claimed {
			return Answer{}, false, err
		}
		first, err = a.Stored(ctx, tx, key)
		if !errors.Is(err, pgx.ErrNoRows) { // otherwise the old row was deleted meanwhile
			return first, err == nil, err
		}
	}
}

// insert inserts the key's row, or replaces a row that is older than KeyRetention. It reports whether it did either. It
// uses the time of the database, and two statements because a distributed Postgres does not accept now() in
// "on conflict do update".
func (a AnswerTable) insert(ctx context.Context, tx pgx.Tx, key Key) (bool, error) {
	tag, err := tx.Exec(ctx, `
		insert into `+a.Name+` (tenant_id, user_id, route, key, body_hash)
		values ($1, $2, $3, $4, $5) on conflict (tenant_id, user_id, route, key) do nothing`,
		key.WorkspaceID, key.User, key.Route, key.Text, key.Body[:])
	if err == nil && tag.RowsAffected() == 0 {
		tag, err = tx.Exec(ctx, `
			update `+a.Name+` set body_hash = $5, created_at = now(), status = null
			where tenant_id = $1 and user_id = $2 and route = $3 and key = $4
				and created_at <= now() - make_interval(secs => $6)`,
			key.WorkspaceID, key.User, key.Route, key.Text, key.Body[:], KeyRetention.Seconds())
	}
	if err != nil {
		return false, fmt.Errorf("claim an idempotency key: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// A Querier runs a query, in a transaction or not.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Stored returns the answer of a known key, without claiming it. It returns ErrReused if the key was used for another
// body, an error that wraps pgx.ErrNoRows if the key is not known, or another *apierr.Error if the caller must not get
// the answer.
func (a AnswerTable) Stored(ctx context.Context, db Querier, key Key) (first Answer, err error) {
	var same bool
	var needs []string
	var credential *uuid.UUID
	err = db.QueryRow(ctx, `
		select body_hash = $5, status, coalesce(etag, ''), coalesce(location, ''), body, needs, credential_id
		from `+a.Name+` where tenant_id = $1 and user_id = $2 and route = $3 and key = $4
			and created_at > now() - make_interval(secs => $6)`,
		key.WorkspaceID, key.User, key.Route, key.Text, key.Body[:], KeyRetention.Seconds()).
		Scan(&same, &first.Status, &first.ETag, &first.Location, &first.Body, &needs, &credential)
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer of an idempotency key: %w", err)
	}
	if !same {
		return Answer{}, ErrReused
	}
	if err := key.By.mayRepeat(perm.FromStrings(needs), credential); err != nil {
		return Answer{}, err
	}
	if a.Box != nil {
		if first.Body, err = a.Box.OpenBytes(first.Body); err != nil {
			return Answer{}, fmt.Errorf("open the answer of an idempotency key: %w", err)
		}
	}
	first.Replayed = true
	web.AddRecords(ctx, 0) // it changes nothing
	return first, nil
}

func (a AnswerTable) store(ctx context.Context, tx pgx.Tx, key Key, answer Answer) error {
	body := answer.Body
	if a.Box != nil {
		body = a.Box.SealBytes(body)
	}
	var credential *uuid.UUID
	if answer.Secret && key.By.Credential != uuid.Nil {
		credential = &key.By.Credential
	}
	tag, err := tx.Exec(ctx, `
		update `+a.Name+` set status = $5, etag = $6, location = $7, body = $8, needs = $9, credential_id = $10
		where tenant_id = $1 and user_id = $2 and route = $3 and key = $4`,
		key.WorkspaceID, key.User, key.Route, key.Text, answer.Status, answer.ETag, answer.Location, body,
		answer.Needs.Strings(), credential)
	if err != nil {
		return fmt.Errorf("store the answer of an idempotency key: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errors.New("the row of the idempotency key disappeared during its transaction")
	}
	return nil
}

// Kind returns the kind of the keys that are older than KeyRetention.
func (a AnswerTable) Kind() retention.Kind {
	return retention.RowsOfWorkspaces(a.Name, "tenant_id, user_id, route, key", "t.created_at", "").
		Fixed("idempotency keys", KeyRetention)
}
