package admin

import (
	"encoding/json"

	"github.com/almonerhq/almoner/shared/jsontime"
)

// As JSON, createdAt has six decimals always (package moment). The types below are what the stores read into, so their
// own fields are plain times.

// MarshalJSON is json.Marshaler's.
func (c Client) MarshalJSON() ([]byte, error) {
	type plain Client
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(c), jsontime.Time(c.Created)})
}

// MarshalJSON is json.Marshaler's.
func (g Grant) MarshalJSON() ([]byte, error) {
	type plain Grant
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(g), jsontime.Time(g.Created)})
}

// MarshalJSON is json.Marshaler's.
func (k Key) MarshalJSON() ([]byte, error) {
	type plain Key
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(k), jsontime.Time(k.Created)})
}

// MarshalJSON is json.Marshaler's.
func (u User) MarshalJSON() ([]byte, error) {
	type plain User
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(u), jsontime.Time(u.Created)})
}

// MarshalJSON is json.Marshaler's.
func (o Organisation) MarshalJSON() ([]byte, error) {
	type plain Organisation
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(o), jsontime.Time(o.Created)})
}

// MarshalJSON is json.Marshaler's.
func (t Workspace) MarshalJSON() ([]byte, error) {
	type plain Workspace
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(t), jsontime.Time(t.Created)})
}
