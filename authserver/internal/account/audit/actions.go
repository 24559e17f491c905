package audit

// An Action names what happened, as <noun>.<past participle>. It is the column action of account.audit_events and the
// member action of the export.
type Action = string

// The actions. Other code uses the constants (TestActions_AreNamedOnlyInTheTable).
const (
	SignInSucceeded   Action = "sign_in.succeeded"
	SignInFailed      Action = "sign_in.failed"
	SignInRefused     Action = "sign_in.refused"
	SignInProved      Action = "sign_in.proved"
	SignInEnded       Action = "sign_in.ended"
	SignInOthersEnded Action = "sign_in.others_ended"
	IdentityLinked    Action = "identity.linked"
	IdentityUnlinked  Action = "identity.unlinked"
	PasskeyAdded      Action = "passkey.added"
	PasskeyRemoved    Action = "passkey.removed"
	PasskeyStopped    Action = "passkey.stopped"

	CodeFailed            Action = "sign_in.code_failed"
	AuthenticatorAdded    Action = "authenticator.added"
	AuthenticatorRemoved  Action = "authenticator.removed"
	RecoveryCodesReplaced Action = "recovery_codes.replaced"
	RecoveryCodeUsed      Action = "recovery_code.used"

	GrantConsented         Action = "grant.consented"
	GrantRevoked           Action = "grant.revoked"
	GrantRefused           Action = "grant.refused"
	GrantNarrowed          Action = "grant.narrowed"
	ConnectorPolicyChanged Action = "connector_policy.changed"
	TokenCreated           Action = "token.created"
	TokenRevoked           Action = "token.revoked"
	ClientRegistered       Action = "client.registered"
	ClientSecretReplaced   Action = "client.secret_replaced"
	ClientDeleted          Action = "client.deleted"
	AuditExported          Action = "audit.exported"

	OrganisationAdded        Action = "organisation.added"
	WorkspaceAdded           Action = "tenant.added"
	ModuleChanged            Action = "module.changed"
	FeatureChanged           Action = "feature.changed"
	MemberAdded              Action = "member.added"
	MemberPermissionsChanged Action = "member.permissions_changed"
	MemberRemoved            Action = "member.removed"
	MemberLeft               Action = "member.left"
	InvitationCreated        Action = "invitation.created"
	InvitationRenewed        Action = "invitation.renewed"
	InvitationWithdrawn      Action = "invitation.withdrawn"
	InvitationDeclined       Action = "invitation.declined"
	UserAdded                Action = "user.added"
	UserRenamed              Action = "user.renamed"
	UserPasswordSet          Action = "user.password_set"
	UserPasswordChanged      Action = "user.password_changed"
	UserPasswordReset        Action = "user.password_reset"
	UserResetRequested       Action = "user.reset_requested"
	UserMailsChanged         Action = "user.mails_changed"
	UserDisabled             Action = "user.disabled"
	UserEnabled              Action = "user.enabled"

	ProgrammeErased  Action = "programme.erased"
	FormErased       Action = "form.erased"
	SubmissionErased Action = "submission.erased"
	SupporterErased  Action = "supporter.erased"

	KeyRotated  Action = "key.rotated"
	KeyPromoted Action = "key.promoted"
	KeyResealed Action = "key.resealed"
	KeyRemoved  Action = "key.removed"

	RetentionRun Action = "retention.run"
)
