// Package pguuid makes pgx send and receive UUIDs as their 16 bytes.
//
// pgx does not know uuid.UUID and would use its database/sql interfaces, which write each identifier as text
// and parse it again. A wrapper (such as pgx-google-uuid) cannot prevent that for values that are read, and
// for pointers, because pgx tries it after the database/sql interfaces. A codec is tried first.
package pguuid

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Register registers the codec for the types uuid and uuid[] of a connection.
func Register(types *pgtype.Map) {
	one := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: codec{}}
	types.RegisterType(one)
	types.RegisterType(
		&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: one}})
}

// A codec handles uuid.UUID and *uuid.UUID; everything else is handled by pgx.
type codec struct{ pgtype.UUIDCodec }

// PlanEncode implements pgtype.Codec.
func (c codec) PlanEncode(types *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case uuid.UUID:
			return fromValue{}
		case *uuid.UUID:
			return fromPointer{}
		}
	}
	return c.UUIDCodec.PlanEncode(types, oid, format, value)
}

// PlanScan implements pgtype.Codec.
func (c codec) PlanScan(types *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ours := target.(*uuid.UUID); ours && format == pgtype.BinaryFormatCode {
		return toPointer{}
	}
	return c.UUIDCodec.PlanScan(types, oid, format, target)
}

type fromValue struct{}

func (fromValue) Encode(value any, out []byte) ([]byte, error) {
	id := value.(uuid.UUID) // guaranteed by PlanEncode
	return append(out, id[:]...), nil
}

type fromPointer struct{}

func (fromPointer) Encode(value any, out []byte) ([]byte, error) {
	id := value.(*uuid.UUID) // guaranteed by PlanEncode
	if id == nil {
		return nil, nil // NULL
	}
	return append(out, id[:]...), nil
}

type toPointer struct{}

var errNull = errors.New("NULL is not an identifier: read it into a *uuid.UUID")

func (toPointer) Scan(in []byte, target any) error {
	if in == nil {
		return errNull
	}
	id := target.(*uuid.UUID) // guaranteed by PlanScan
	if len(in) != len(id) {
		return fmt.Errorf("an identifier of %d bytes", len(in))
	}
	copy(id[:], in)
	return nil
}
