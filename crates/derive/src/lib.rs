//! `#[derive(Relocatable)]`, for types that flat maps store.
//!
//! Depend on [relativist](https://docs.rs/relativist) instead of this crate. It re-exports the
//! macro next to the trait of the same name, under the feature `derive`, which is a default.

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenStream as Tokens};
use quote::{format_ident, quote};
#[cfg(test)]
use relativist_testing as _;
use syn::spanned::Spanned;
use syn::{
    Data, DataEnum, DeriveInput, Error, Field, Fields, Member, Result, WherePredicate, parse_macro_input, parse_quote,
    parse_quote_spanned,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Implements the trait `Relocatable` of `relativist` for a struct or an enum whose fields all have
/// types that implement it.
///
/// ```
/// #![forbid(unsafe_code)]
/// use relativist::{FlatMap, Relocatable};
///
/// #[derive(Relocatable)]
/// struct Account {
///     owner: String,
///     balance: i64,
/// }
///
/// let accounts = FlatMap::new();
/// accounts.pin().insert(7, Account { owner: "Ada".into(), balance: 10 });
/// ```
///
/// A field of another type is an error, which shows the field:
///
/// ```compile_fail,E0277
/// use relativist::Relocatable;
/// use std::sync::atomic::AtomicU64;
///
/// #[derive(Relocatable)]
/// struct Page {
///     path: String,
///     hits: AtomicU64, // error: `AtomicU64` is not `Relocatable`
/// }
/// ```
///
/// Put the value behind a pointer:
///
/// ```
/// use relativist::Relocatable;
/// use std::sync::Arc;
/// use std::sync::atomic::AtomicU64;
///
/// #[derive(Relocatable)]
/// struct Page {
///     path: String,
///     hits: Arc<AtomicU64>,
/// }
/// ```
///
/// # Generic types
///
/// The bounds are on the types of fields, not on the parameters. So a `Shared<T>` with a field of
/// type `Arc<T>` is `Relocatable` for all `T: Send + Sync + 'static`, and a `Pair<T>` with a field
/// of type `T` only if `T` is `Relocatable`:
///
/// ```
/// use relativist::{FlatMap, Relocatable};
/// use std::sync::Arc;
/// use std::sync::atomic::AtomicU64;
///
/// #[derive(Relocatable)]
/// struct Shared<T>(Arc<T>);
///
/// let counters: FlatMap<&str, Shared<AtomicU64>> = FlatMap::new();
/// ```
///
/// ```compile_fail,E0277
/// use relativist::{FlatMap, Relocatable};
/// use std::sync::atomic::AtomicU64;
///
/// #[derive(Relocatable)]
/// struct Pair<T>(T, T);
///
/// let counters = FlatMap::new();
/// counters.pin().insert("hits", Pair(AtomicU64::new(0), AtomicU64::new(0))); // error
/// ```
///
/// # Limits
///
/// * A union is refused: it does not say which of its fields is in use. Store a `Box` of it.
/// * The generated code names the trait `::relativist::Relocatable`, so the crate must depend on
///   `relativist` itself. If it does so under another name, it needs
///   `extern crate other_name as relativist;` in its root.
///
/// ```compile_fail
/// #[derive(relativist::Relocatable)] // error: a union cannot derive `Relocatable`
/// union Number {
///     integer: u64,
///     float: f64,
/// }
/// ```
///
/// # Unsafe code
///
/// The trait is unsafe, and the macro generates an `unsafe impl`. A crate may use it under
/// `#![forbid(unsafe_code)]`, because that lint does not apply to what macros of other crates
/// generate. The macro also generates code that checks the fields of the compiled type. Without
/// that check, an attribute macro below the `derive` could replace a field by an atomic.
#[proc_macro_derive(Relocatable)]
pub fn relocatable(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(mut input: DeriveInput) -> Result<Tokens> {
    let (fields, check): (Vec<&Field>, _) = match &input.data {
        Data::Struct(data) => (data.fields.iter().collect(), check_struct(&data.fields)),
        Data::Enum(data) => (data.variants.iter().flat_map(|variant| &variant.fields).collect(), check_enum(data)),
        Data::Union(data) => {
            let message = "a union cannot derive `Relocatable`: store a `Box` of it";
            return Err(Error::new(data.union_token.span, message));
        }
    };
    let bounds = &mut input.generics.make_where_clause().predicates;
    bounds.extend(fields.into_iter().map(bound));
    // The trait requires it. The other bounds don't imply it for an `I` of which only `I::Item` is
    // stored.
    bounds.push(parse_quote!(Self: 'static));

    let name = &input.ident;
    let (impl_generics, type_generics, bounds) = input.generics.split_for_impl();
    // The `unsafe impl` is sound if `bounds` has the types of all fields. These are the types that
    // the macro has seen, but an attribute macro or a macro in place of a type may have produced
    // others since. So `_check`, which is never called, compiles only if the macro has seen all
    // fields, and their real types are `Relocatable` under these bounds. It is a method because the
    // bounds may contain `Self`.
    Ok(quote! {
        const _: () = {
            #[automatically_derived]
            unsafe impl #impl_generics ::relativist::Relocatable for #name #type_generics #bounds {}

            trait _Fields {
                fn _check(&self);
            }
            #[automatically_derived]
            impl #impl_generics _Fields for #name #type_generics #bounds {
                fn _check(&self) {
                    fn _field<T: ::relativist::Relocatable + ?::core::marker::Sized>(_: *const T) {}
                    #check
                }
            }
        };
    })
}

/// The bound that the type of a field is `Relocatable`. If it is not, the compiler shows the field:
/// the bound has its place. Otherwise the bound belongs to the macro, so that lints pass it over.
fn bound(field: &Field) -> WherePredicate {
    let ty = &field.ty;
    parse_quote_spanned!(Span::call_site().located_at(ty.span())=> #ty: ::relativist::Relocatable)
}

/// Checks fields by raw pointers, because those of a packed struct allow no references.
fn check_struct(fields: &Fields) -> Tokens {
    let members: Vec<Member> = fields.members().collect();
    quote! {
        let Self { #(#members: _),* } = self;
        #(_field(&raw const self.#members);)*
    }
}

fn check_enum(data: &DataEnum) -> Tokens {
    let arms = data.variants.iter().map(|variant| {
        let (name, members) = (&variant.ident, variant.fields.members());
        let bindings: Vec<_> = (0..variant.fields.len()).map(|n| format_ident!("_field_{n}")).collect();
        quote!(Self::#name { #(#members: ref #bindings),* } => { #(_field(#bindings);)* })
    });
    // Without the `*`, an enum without variants would need an arm.
    quote!(match *self { #(#arms)* })
}
