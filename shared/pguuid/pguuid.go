// Package pguuid answers: how do identifiers travel between the services and PostgreSQL? As their 16 bytes, both ways.
//
// pgx knows nothing of uuid.UUID, and by itself uses what the type offers to database/sql: each identifier would be
// written as text and parsed again. A wrapper (such as pgx-google-uuid) comes too late to prevent that for what is
// read, and for pointers: pgx asks it after database/sql's interfaces. A codec is asked before.
package pguuid

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Register makes a connection's values of type uuid and uuid[] travel so.
func Register(types *pgtype.Map) {
	one := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: codec{}}
	types.RegisterType(one)
	types.RegisterType(
		&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: one}},
	)
}

// A codec is pgx's own for everything but uuid.UUID and a pointer to one.
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
	id := value.(uuid.UUID) // or PlanEncode would not have chosen this
	return append(out, id[:]...), nil
}

type fromPointer struct{}

func (fromPointer) Encode(value any, out []byte) ([]byte, error) {
	id := value.(*uuid.UUID) // likewise
	if id == nil {
		return nil, nil // NULL
	}
	return append(out, id[:]...), nil
}

type toPointer struct{}

var errNull = errors.New("NULL is no identifier: read it into a *uuid.UUID")

func (toPointer) Scan(in []byte, target any) error {
	if in == nil {
		return errNull
	}
	id := target.(*uuid.UUID) // likewise
	if len(in) != len(id) {
		return fmt.Errorf("an identifier of %d bytes", len(in))
	}
	copy(id[:], in)
	return nil
}
