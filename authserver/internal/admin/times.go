package admin

import (
	"encoding/json"

	"github.com/almonerhq/almoner/shared/jsontime"
)

// In JSON, createdAt always has six decimals (package jsontime). The stores scan into the types below, so their fields
// are plain times.

// MarshalJSON implements json.Marshaler.
func (c Client) MarshalJSON() ([]byte, error) {
	type plain Client
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(c), jsontime.Time(c.Created)})
}

// MarshalJSON implements json.Marshaler.
func (g Grant) MarshalJSON() ([]byte, error) {
	type plain Grant
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(g), jsontime.Time(g.Created)})
}

// MarshalJSON implements json.Marshaler.
func (k Key) MarshalJSON() ([]byte, error) {
	type plain Key
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(k), jsontime.Time(k.Created)})
}

// MarshalJSON implements json.Marshaler.
func (u User) MarshalJSON() ([]byte, error) {
	type plain User
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(u), jsontime.Time(u.Created)})
}

// MarshalJSON implements json.Marshaler.
func (o Organisation) MarshalJSON() ([]byte, error) {
	type plain Organisation
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(o), jsontime.Time(o.Created)})
}

// MarshalJSON implements json.Marshaler.
func (t Workspace) MarshalJSON() ([]byte, error) {
	type plain Workspace
	return json.Marshal(struct {
		plain
		Created jsontime.Time `json:"createdAt"`
	}{plain(t), jsontime.Time(t.Created)})
}
